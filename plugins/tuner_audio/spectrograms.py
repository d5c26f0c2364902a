"""Random changes of log-mel patches, and of the maps that a network makes of them: shift in time, masked spans.

Source: SpecAugment (Park and others, 2019), whose masks take the mean, here of each channel's map.
"""

import math

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.augment.maps import changes_nothing
from tuner.errors import StoreError, nearest

#: Random changes of log-mel patches [C, bands, frames]; these act on inputs and on stored maps alike.
SPECTRAL = frozenset({"frequency-mask", "time-mask", "time-shift"})
_FARTHEST = 0.1  # shift of full strength, in lengths of the map
_WIDEST = 0.2  # masked span of full strength, likewise
_AXES = 4


def check_spectral_operations(ops: frozenset[str]) -> None:
    """Refuse operations that sounds cannot take.

    Raises:
        StoreError: There is one.
    """
    for op in sorted(ops - SPECTRAL):
        raise StoreError(
            f"sounds cannot be changed by {op!r}{nearest(op, SPECTRAL)}: use frequency-mask, time-mask or time-shift"
        )


def augment_spectrograms(maps: Floats, generator: np.random.Generator, ops: frozenset[str], strength: float) -> Floats:
    """Draw each operation once per sample and apply it to all its channels.

    Args:
        maps: float32 `[n, C, bands, frames]`.
        generator: Generator of the trial; the same state gives the same maps.
        ops: `time-shift` (by up to `round(0.1 * strength * frames)`, the edge repeated), `time-mask` (a span of up to
            `round(0.2 * strength * frames)` takes each channel's mean), `frequency-mask` (likewise of bands).
        strength: From 0 (maps are returned as they are, and so are those of one position) to 1.

    Returns:
        float32, the shape of `maps`.

    Raises:
        StoreError: An operation is another, the maps have another number of axes, or the strength is out of range.
    """
    check_spectral_operations(ops)
    if changes_nothing(maps, ops, strength):
        return maps
    if maps.ndim != _AXES:
        raise StoreError(f"maps must have shape [n, C, bands, frames], got {list(maps.shape)}")
    if "time-shift" in ops:
        maps = _shifted(maps, generator, strength)
    count, _, bands, frames = maps.shape
    masked = np.zeros((count, 1, bands, frames), bool)
    if "time-mask" in ops:
        masked |= _spans(count, frames, generator, strength)[:, None, None, :]
    if "frequency-mask" in ops:
        masked |= _spans(count, bands, generator, strength)[:, None, :, None]
    return np.where(masked, maps.mean(axis=(2, 3), keepdims=True), maps) if masked.any() else maps


def _shifted(maps: Floats, generator: np.random.Generator, strength: float) -> Floats:
    count, _, _, frames = maps.shape
    reach = math.floor(_FARTHEST * strength * frames + 0.5)
    by = generator.integers(-reach, reach, (count, 1, 1, 1), endpoint=True)
    sources = np.clip(np.arange(frames) - by, 0, frames - 1)  # int [n, 1, 1, frames]
    return np.take_along_axis(maps, sources, axis=3)


def _spans(count: int, size: int, generator: np.random.Generator, strength: float) -> npt.NDArray[np.bool_]:
    """Return which elements of an axis are masked, bool [n, size]."""
    widths = generator.integers(0, math.floor(_WIDEST * strength * size + 0.5), (count, 1), endpoint=True)
    begins = (generator.random((count, 1)) * (size - widths + 1)).astype(np.int64)
    at = np.arange(size)
    return (at >= begins) & (at < begins + widths)
