"""Random changes of signals [C, T]: time shift, lower resolution, noise and slow drift. Source: MDLdroidLite."""

import math

import numpy as np

from tuner.arrays import Floats

_FARTHEST = 0.1  # shift of full strength, in lengths of the signal
_COARSEST = 4  # samples that pooling of full strength may average
_LOUDEST = 0.2  # deviation of the noise of full strength; the unit is a channel's own deviation
_WIDEST = 0.5  # largest drift of full strength, in the same unit
_KNOTS = 5  # of the broken line that a drift follows


def augment_signals(signals: Floats, generator: np.random.Generator, ops: frozenset[str], strength: float) -> Floats:
    """Draw each operation once per sample and apply it.

    Args:
        signals: float32 `[n, C, T]`; standardised where `noise` or `drift` act, whose sizes are in deviations.
        generator: Generator of the trial; the same state gives the same signals.
        ops: `shift` (by up to `round(0.1 * strength * T)` samples, zeros moving in), `pool` (means of up to
            `1 + round(3 * strength)` neighbours, each repeated), `drift` (a broken line through 5 random knots of at
            most `0.5 * strength`, a different one each channel), `noise` (normal, of a deviation of up to
            `0.2 * strength`).
        strength: From 0 to 1.

    Returns:
        float32, the shape of `signals`.
    """
    if "shift" in ops:
        signals = _shifted(signals, generator, strength)
    if "pool" in ops:
        signals = _pooled(signals, generator, strength)
    if "drift" in ops:
        signals = signals + _drift(signals.shape, generator, strength)
    if "noise" in ops:
        loudness = generator.uniform(0, _LOUDEST * strength, (len(signals), 1, 1)).astype(np.float32)
        signals = signals + loudness * generator.standard_normal(signals.shape, dtype=np.float32)
    return signals


def _shifted(signals: Floats, generator: np.random.Generator, strength: float) -> Floats:
    count, _, time = signals.shape
    reach = math.floor(_FARTHEST * strength * time + 0.5)
    sources = np.arange(time) - generator.integers(-reach, reach, (count, 1, 1), endpoint=True)  # int [n, 1, T]
    moved = np.take_along_axis(signals, np.clip(sources, 0, time - 1), axis=2)
    return np.where((sources >= 0) & (sources < time), moved, np.float32(0))


def _pooled(signals: Floats, generator: np.random.Generator, strength: float) -> Floats:
    """Average groups of neighbours; the last group of a signal may be smaller."""
    time = signals.shape[2]
    widest = 1 + math.floor((_COARSEST - 1) * strength + 0.5)
    sizes = generator.integers(1, widest, len(signals), endpoint=True)
    pooled = signals.copy()
    for size in np.unique(sizes[sizes > 1]):
        begins = np.arange(0, time, size)
        lengths = np.diff(begins, append=time)
        means = np.add.reduceat(signals[sizes == size], begins, axis=2) / lengths.astype(np.float32)
        pooled[sizes == size] = np.repeat(means, lengths, axis=2)
    return pooled


def _drift(shape: tuple[int, ...], generator: np.random.Generator, strength: float) -> Floats:
    count, channels, time = shape
    knots = generator.uniform(-_WIDEST * strength, _WIDEST * strength, (count, channels, _KNOTS))
    at = np.linspace(0, _KNOTS - 1, time)
    left = np.minimum(at.astype(np.int64), _KNOTS - 2)
    drift: Floats = (knots[..., left] * (1 - at + left) + knots[..., left + 1] * (at - left)).astype(np.float32)
    return drift
