"""A seeded, stratified holdout, for data that comes without a validation set."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def stratified_holdout(
    labels: NDArray[Any], fraction: float = 0.2, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide samples so that both sides see every class they can.

    A class of two samples or more keeps at least one on each side; a class of one stays with the rest. With several
    labels a sample, its rarest label decides where it is counted, and no label is held out that the rest lacks.

    Args:
        labels: int [n], or multi-hot [n, k].
        fraction: Part of each class to hold out.
        seed: Same seed and labels, same division.

    Returns:
        Sorted indices: the rest, and those held out.
    """
    several = labels.ndim > 1
    strata = _rarest(labels) if several else labels
    generator = np.random.default_rng(seed)
    held = np.zeros(len(labels), bool)
    for stratum in np.unique(strata):
        members = generator.permutation(np.flatnonzero(strata == stratum))
        if len(members) > 1:
            count = min(max(1, round(fraction * len(members))), len(members) - 1)
            held[members[:count]] = True
    if several:
        lacking = (labels[~held] > 0).sum(axis=0) == 0
        held &= ~(labels[:, lacking] > 0).any(axis=1)
    return np.flatnonzero(~held), np.flatnonzero(held)


def _rarest(labels: NDArray[Any]) -> NDArray[np.int64]:
    """The rarest positive column of each row; the number of columns for a row without any."""
    present = labels > 0
    counts = np.where(present, present.sum(axis=0), len(labels) + 1)  # int [n, k]
    rarest: NDArray[np.int64] = np.where(present.any(axis=1), counts.argmin(axis=1), labels.shape[1])
    return rarest
