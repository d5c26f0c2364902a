"""Codes of 1 bit whose scales belong to one sample: each channel's own two values, in front of its codes.

Scales of a whole calibration set leave little of one bit: most of a sample's values get the same code, and what they
decode to has neither the sample's mean nor its spread. Here a code says whether a value is above its channel's mean in
that sample, and decodes to the mean of the values on its side (absolute moment block truncation coding, Lema and
Mitchell 1984).

All of it happens between 8-bit codes and bits, whole numbers both: two bytes a channel hold the scales.
"""

import numpy as np

from tuner.arrays import Codes


def narrowed(records8: Codes, channels: int) -> tuple[Codes, Codes]:
    """Return the bits of 8-bit records, and the scales that `widened` needs.

    Args:
        records8: uint8 `[n, C·H·W]`.
        channels: Channels C.

    Returns:
        Bits, uint8 `[n, C·H·W]`; what 0 decodes to and then what 1 adds, of all channels, uint8 `[n, 2·C]`.
    """
    values = records8.reshape(len(records8), channels, -1)
    positions, totals = values.shape[2], values.sum(axis=2, dtype=np.int64)
    above = values > (totals // positions)[:, :, None]  # of whole numbers, above the mean is above its floor
    counts = np.count_nonzero(above, axis=2)
    sums = (values * above).sum(axis=2, dtype=np.int64)
    firsts = np.rint((totals - sums) / (positions - counts))
    lasts = np.where(counts > 0, np.rint(sums / np.maximum(counts, 1)), firsts)
    scales = np.concatenate([firsts, lasts - firsts], axis=1).astype(np.uint8)
    return above.astype(np.uint8).reshape(records8.shape), scales


def widened(codes: Codes, scales: Codes) -> Codes:
    """Return 8-bit records, uint8 `[n, C·H·W]`, of bits and scales as `narrowed` returns them."""
    firsts, steps = scales.reshape(len(scales), 2, -1, 1).swapaxes(0, 1)
    records8 = codes.reshape(*firsts.shape[:2], -1) * steps
    records8 += firsts
    return records8.reshape(codes.shape)
