"""Codes of 1 and 2 bits whose scales belong to one sample: each channel's own first value and step, before its codes.

Scales of a whole calibration set leave little of a narrow code: most of a sample's values get the same one, and what
they decode to has neither the sample's mean nor its spread. Here a channel's codes divide its values around their own
mean, and they decode to the line through the values that errs least in the square. With 1 bit these are the means of
the values below and above the channel's mean (absolute moment block truncation coding, Lema and Mitchell 1984); with 2
bits the steps are the best equal ones of a normal distribution (Max 1960).

All of it happens between 8-bit codes and narrow ones, whole numbers both: two bytes a channel hold the scales.
"""

import numpy as np

from tuner.arrays import Codes, Floats

_STEPS = {2: 0.9957, 1: 1.5958}  # of a code, in standard deviations
_LAST_CODE = 255


def narrowed(records8: Codes, channels: int, bits: int) -> tuple[Codes, Codes]:
    """Return the codes of 8-bit records, and the scales that `widened` needs.

    Args:
        records8: uint8 `[n, C·H·W]`.
        channels: Channels C.
        bits: 2 or 1.

    Returns:
        Codes below `2**bits`, uint8 `[n, C·H·W]`; first values and then steps of all channels, uint8 `[n, 2·C]`.
    """
    values = records8.reshape(len(records8), channels, -1).astype(np.float32)
    means = values.mean(axis=2, keepdims=True)
    values -= means
    top = 2**bits - 1
    spread: Floats = np.sqrt(_mean_product(values, values))
    spread[spread == 0] = 1
    codes: Floats = values / (spread * np.float32(_STEPS[bits]))
    codes += np.float32(top / 2)
    np.rint(codes, out=codes)
    np.clip(codes, 0, top, out=codes)
    middle = codes.mean(axis=2, keepdims=True)
    variance = _mean_product(codes, codes) - middle * middle
    slopes = np.where(variance > 0, _mean_product(values, codes) / np.where(variance > 0, variance, 1), 0)
    firsts = np.clip(np.rint(means - slopes * middle), 0, _LAST_CODE)
    steps = np.minimum(np.rint(slopes), (_LAST_CODE - firsts) // top)  # so that no code decodes to more than 255
    scales = np.concatenate([firsts, steps], axis=1)[:, :, 0]
    return codes.astype(np.uint8).reshape(records8.shape), scales.astype(np.uint8)


def widened(codes: Codes, scales: Codes) -> Codes:
    """Return 8-bit records, uint8 `[n, C·H·W]`, of codes and scales as `narrowed` returns them."""
    firsts, steps = scales.reshape(len(scales), 2, -1, 1).swapaxes(0, 1)
    records8 = codes.reshape(*firsts.shape[:2], -1) * steps
    records8 += firsts
    return records8.reshape(codes.shape)


def _mean_product(first: Floats, second: Floats) -> Floats:
    """Return the mean of the products over positions, float32 `[n, C, 1]`."""
    sums: Floats = np.einsum("ncp,ncp->nc", first, second)[:, :, None]
    return sums / np.float32(first.shape[2])
