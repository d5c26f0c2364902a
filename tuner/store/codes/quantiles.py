"""Quantiles of each channel of a calibration set: the scales of codes (Cache-and-Reuse, Q_k and Q_{1-k} of C)."""

import math

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.errors import StoreError


def calibrate(features: npt.NDArray[np.floating], quantile: float = 0.01) -> tuple[Floats, Floats]:
    """Return two quantiles of each channel over samples and positions, by selection, interpolated linearly.

    Args:
        features: float32 `[n, C, ...]`, the calibration set.
        quantile: Share k clipped at each end, in `[0, 0.5)`; 0 gives minimum and maximum.

    Returns:
        float32 `[C]` and `[C]`: the k and the 1-k quantile.

    Raises:
        StoreError: No features, a value that is not finite, or a quantile outside its range.
    """
    if not 0.0 <= quantile < 0.5:  # noqa: PLR2004 - beyond the median the two quantiles change places
        raise StoreError(f"the clip quantile must be in [0, 0.5), got {quantile}")
    if features.ndim < 2 or features.size == 0:  # noqa: PLR2004 - [n, C, ...]
        raise StoreError(f"calibration features must have shape [n, C, ...], got {list(features.shape)}")
    channels = features.shape[1]
    low, high = np.empty(channels, np.float32), np.empty(channels, np.float32)
    for channel in range(channels):
        values = np.array(features[:, channel], dtype=np.float32).reshape(-1)
        refuse_unfinite(values)
        last = len(values) - 1
        below = math.floor(quantile * last)
        above = min(below + 1, last)
        values.partition(sorted({below, above, last - above, last - below}))
        share = quantile * last - below
        low[channel] = _between(values[below], values[above], share)
        high[channel] = _between(values[last - below], values[last - above], share)
    return low, high


def refuse_unfinite(values: Floats) -> None:
    """Check that every value is finite, in one fast pass.

    A sum of squares is finite only if every value is; where the sum overflowed, the values are looked at again.

    Raises:
        StoreError: A value is infinite or not a number.
    """
    line = values.reshape(-1)
    with np.errstate(all="ignore"):
        squares = np.dot(line, line)
    if not np.isfinite(squares) and not np.isfinite(line).all():
        raise StoreError("features hold infinite or undefined values: check the prefix's weights and its input")


def _between(first: np.float32, second: np.float32, share: float) -> np.float32:
    return np.float32(float(first) + share * (float(second) - float(first)))
