"""Random geometry on stored feature maps, in place of random geometry on pixels (Cache-and-Reuse, step B2).

A prefix is nearly equivariant under geometry and not at all under changes of colour. Every operation on maps moves
whole elements along an axis, so a sample's whole draw is a list of indices per axis, applied to all channels alike.
Nothing is interpolated and no zeros move in: maps that are smoothed, or zeros after a linear bottleneck, are nothing
that the tail meets in use (clothing, four epochs, 4 bits: 1.6 points worse than no changes). Pixels are interpolated
anyway: a crop of inputs is the RandomResizedCrop that the authors' code has.
"""

import math

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.augment.operations import (
    GEOMETRIC,
    INPUT_ONLY,
    RESIZED_CROP,
    TEMPORAL,
    check_operations,
    check_signal_operations,
)
from tuner.augment.signals import augment_signals
from tuner.errors import StoreError

_SMALLEST_AREA = 0.5  # share of the map that a crop of full strength keeps at least
_SMALLEST_RESIZED = 0.08  # the same of pixels, as in torchvision's RandomResizedCrop
_WIDEST_ASPECT = 4 / 3
_FARTHEST = 0.1  # shift of full strength, in sizes
_MAP_DIMENSIONS, _SIGNAL_DIMENSIONS = 4, 3

_Sources = npt.NDArray[np.int64]  # [n, size]: which element each comes from

_Places = npt.NDArray[np.float64]  # the same between elements


def augment(maps: Floats, generator: np.random.Generator, ops: frozenset[str], strength: float) -> Floats:
    """Draw one geometric change per sample and apply it to all its channels.

    Args:
        maps: float32 `[n, C, H, W]` or `[n, C, T]`; `[n, C]` and maps of one position are returned as they are.
        generator: Generator of the trial; the same state gives the same maps.
        ops: `flip` (left-right, every other sample), `crop` (a box of at least `1 - strength / 2` of the area and an
            aspect within 3/4 and 4/3, each element taken from the nearest of the box), `shift` (by up to
            `round(0.1 * strength * size)`, the edge repeated), and `resized-crop` (a box of at least
            `1 - 0.92 * strength` of the area, enlarged bilinearly). Signals `[n, C, T]` take `shift` and what
            `tuner.augment.signals.augment_signals` adds to it, along the last axis.
        strength: From 0 (maps are returned as they are) to 1.

    Returns:
        float32, the shape of `maps`.

    Raises:
        StoreError: An operation that is unknown, photometric, or not one for signals; a strength out of range.
    """
    of_signals = maps.ndim == _SIGNAL_DIMENSIONS or bool(ops & (TEMPORAL | INPUT_ONLY) - GEOMETRIC)
    if not of_signals:
        check_operations(ops - {RESIZED_CROP})
    if changes_nothing(maps, ops, strength):
        return maps
    if of_signals:
        check_signal_operations(ops)
        lines = maps.reshape(len(maps), -1, maps.shape[-1])
        return augment_signals(lines, generator, ops, strength).reshape(maps.shape)
    if maps.ndim != _MAP_DIMENSIONS:
        raise StoreError(f"maps must have shape [n, C, H, W] or [n, C, T], got {list(maps.shape)}")
    if RESIZED_CROP in ops:
        maps = _resized(maps, generator, strength)
    rows, columns = _draw(maps.shape, generator, ops, strength)
    moved: Floats = np.take_along_axis(maps, columns[:, None, None, :], axis=3)
    return moved if rows is None else np.take_along_axis(moved, rows[:, None, :, None], axis=2)


def changes_nothing(maps: Floats, ops: frozenset[str], strength: float) -> bool:
    """Return whether no operation can change any map: there is none, or the maps have one position.

    Raises:
        StoreError: The strength is not from 0 to 1.
    """
    if not 0.0 <= strength <= 1.0:
        raise StoreError(f"augmentation strength must be in [0, 1], got {strength}")
    return not ops or strength == 0.0 or math.prod(maps.shape[2:]) == 1 or maps.size == 0


def _draw(
    shape: tuple[int, ...], generator: np.random.Generator, ops: frozenset[str], strength: float
) -> tuple[_Sources | None, _Sources]:
    """Return where the elements of rows and columns come from; `None` where rows stay in place."""
    count, _, height, width = shape
    rows: _Sources | None = None
    columns: _Sources = np.broadcast_to(np.arange(width), (count, width))
    if "crop" in ops:
        rows, columns = _crop(count, (height, width), generator, strength)
    if "flip" in ops:
        flipped = generator.random(count) < 0.5  # noqa: PLR2004 - as likely as not
        columns = np.where(flipped[:, None], columns[:, ::-1], columns)
    if "shift" in ops:
        down, right = (_shift(count, size, generator, strength) for size in (height, width))
        rows = down if rows is None else np.take_along_axis(rows, down, axis=1)
        columns = np.take_along_axis(columns, right, axis=1)
    return rows, columns


def _crop(
    count: int, size: tuple[int, int], generator: np.random.Generator, strength: float
) -> tuple[_Sources, _Sources]:
    rows, columns = _boxes(count, size, generator, strength, _SMALLEST_AREA)
    return rows.astype(np.int64), columns.astype(np.int64)


def _resized(maps: Floats, generator: np.random.Generator, strength: float) -> Floats:
    boxes = _boxes(len(maps), maps.shape[2:], generator, strength, _SMALLEST_RESIZED)
    resized = np.empty_like(maps)
    for sample, (value, *places) in enumerate(zip(maps, *boxes, strict=True)):  # ten times as fast as all at once
        for axis, place in enumerate(places, 1):
            centred = np.clip(place - 0.5, 0, len(place) - 1)  # as values lie in the middle of their elements
            low = centred.astype(np.int64)
            part = (centred - low).astype(np.float32).reshape(-1, *(1,) * (2 - axis))
            lower, upper = (np.take(value, at, axis) for at in (low, np.minimum(low + 1, len(place) - 1)))
            value = lower + part * (upper - lower)  # noqa: PLW2901 - first rows, then columns
        resized[sample] = value
    return resized


def _boxes(
    count: int, size: tuple[int, ...], generator: np.random.Generator, strength: float, smallest: float
) -> tuple[_Places, _Places]:
    """Return where the middle of each row and column of a map comes from, of a random box of each sample."""
    area = generator.uniform(1 - (1 - smallest) * strength, 1, count)
    reach = math.log(_WIDEST_ASPECT) * strength
    aspect = np.exp(generator.uniform(-reach, reach, count))
    shares = (np.minimum(np.sqrt(area / aspect), 1), np.minimum(np.sqrt(area * aspect), 1))
    return _section(shares[0], size[0], generator), _section(shares[1], size[1], generator)


def _section(share: _Places, size: int, generator: np.random.Generator) -> _Places:
    """Spread a random section of `share * size` elements over the whole axis."""
    start = generator.random(len(share)) * (1 - share) * size
    places: _Places = start[:, None] + (np.arange(size) + 0.5) * share[:, None]
    return places


def _shift(count: int, size: int, generator: np.random.Generator, strength: float) -> _Sources:
    reach = math.floor(_FARTHEST * strength * size + 0.5)
    by = generator.integers(-reach, reach, count, endpoint=True)
    sources: _Sources = np.clip(np.arange(size) - by[:, None], 0, size - 1)
    return sources
