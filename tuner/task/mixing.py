"""Global dataset mixing: which global samples a fraction α takes."""

import numpy as np
import numpy.typing as npt

from tuner.plan import per_class_counts
from tuner.task.samples import Samples

MIX_SEED = 0  # one order per task: a larger fraction takes a superset of a smaller one's samples


def mixed(labels: npt.NDArray[np.generic], alpha: float, seed: int = MIX_SEED) -> npt.NDArray[np.int64]:
    """Return the sorted indices of the samples a fraction `alpha` of every class takes.

    Source: MoIL, Algorithm 1. With several labels a sample: for each label a fraction of its positives, each sample
    once, and the same fraction of those without a label.

    Args:
        labels: int64 [n], or float32 [n, k] multi-hot.
        alpha: In [0, 1]; above 0, at least one sample of every class.
        seed: Of the order within each class.
    """
    taken = [
        np.random.default_rng((seed, number)).permutation(members)[:count]
        for number, members in enumerate(_classes(labels))
        for count in per_class_counts((len(members),), alpha)
    ]
    return np.unique(np.concatenate([np.empty(0, np.int64), *taken])).astype(np.int64)


def filling_order(labels: npt.NDArray[np.generic], seed: int = MIX_SEED) -> npt.NDArray[np.int64]:
    """Return all indices in the order in which growing fractions ask for them: every class's first, then its second.

    What a fraction takes is then close to a prefix of this order, and neighbours are filled together.
    """
    ranked = [
        (rank, number, int(index))
        for number, members in enumerate(_classes(labels))
        for rank, index in enumerate(np.random.default_rng((seed, number)).permutation(members))
    ]
    return np.array(list(dict.fromkeys(index for _, _, index in sorted(ranked))), np.int64)


def class_sizes(samples: Samples) -> tuple[int, ...]:
    """Return how many samples each class has that has any."""
    return tuple(len(members) for members in _classes(samples.labels))


def _classes(labels: npt.NDArray[np.generic]) -> list[npt.NDArray[np.int64]]:
    if labels.ndim == 1:
        return [np.flatnonzero(labels == value) for value in np.unique(labels)]
    columns = [np.flatnonzero(labels[:, column] > 0) for column in range(labels.shape[1])]  # type: ignore[operator]  # multi-hot floats
    columns.append(np.flatnonzero(labels.sum(axis=1) == 0))
    return [column for column in columns if len(column)]
