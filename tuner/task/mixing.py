"""Global dataset mixing: which global samples a fraction α takes."""

from functools import lru_cache

import numpy as np

from tuner.arrays import Labels, RowNumbers
from tuner.plan.info import per_class_counts, share_of
from tuner.targets.strata import members_of, strata
from tuner.task.data.samples import Samples

#: Fractions for which the samples that several labels take together are counted.
FRACTIONS = tuple(np.geomspace(1e-3, 1, 49))
MIX_SEED = 0  # one order per task: a larger fraction takes a superset of a smaller one's samples


def mixed_indices(labels: Labels, alpha: float, seed: int = MIX_SEED) -> RowNumbers:
    """Return the sorted indices of the samples that a fraction of every class takes.

    With several labels per sample it is a fraction of each label's positives and of the samples without a label, each
    sample once. Source: MoIL, Algorithm 1.

    Args:
        labels: int64 [n], or float32 [n, k] multi-hot; targets are one class.
        alpha: Fraction in [0, 1]; above 0, at least one sample of every class.
        seed: Seed of the order within each class.
    """
    chosen = [
        _shuffled(members, number, seed)[:count]
        for number, members in enumerate(members_of(labels))
        for count in per_class_counts((len(members),), alpha)
    ]
    return np.unique(np.concatenate([np.empty(0, np.int64), *chosen])).astype(np.int64)


def filling_order(labels: Labels, seed: int = MIX_SEED) -> RowNumbers:
    """Return all indices in the order in which growing shares take them: every prefix is stratified.

    Every class's first sample comes first; after that, a class has as large a share of each prefix as of the whole.
    """
    ranked = [
        (rank / len(members), number, int(index))
        for number, members in enumerate(members_of(labels))
        for rank, index in enumerate(_shuffled(members, number, seed))
    ]
    return np.array(list(dict.fromkeys(index for _, _, index in sorted(ranked))), np.int64)


def shared_indices(labels: Labels, share: float) -> RowNumbers:
    """Return the sorted indices of the samples that a share in (0, 1] takes: a prefix of `filling_order`."""
    return np.sort(filling_order(labels)[: share_of(len(labels), share)])


def class_sizes(samples: Samples) -> tuple[int, ...]:
    """Return the number of samples of each class that has any."""
    return tuple(len(members) for members in members_of(samples.labels))


def mixed_sizes(labels: Labels, seed: int = MIX_SEED) -> tuple[tuple[float, int], ...]:
    """Return how many samples `FRACTIONS` of every label take; nothing where a sample has one label."""
    if strata(labels).ndim == 1:
        return ()
    least = np.full(len(labels), np.inf)  # fraction from which on a sample is taken
    for number, members in enumerate(members_of(labels)):
        ranks = np.arange(len(members))
        own = np.where(ranks == 0, 0.0, (ranks + 0.5) / len(members))
        np.minimum.at(least, _shuffled(members, number, seed), own)
    return tuple((float(fraction), int((least < fraction).sum())) for fraction in FRACTIONS)


def _shuffled(members: RowNumbers, number: int, seed: int) -> RowNumbers:
    """Return a class's samples in its own order."""
    return members[_permutation(len(members), number, seed)]


@lru_cache(maxsize=8192)
def _permutation(count: int, number: int, seed: int) -> RowNumbers:
    return np.random.default_rng((seed, number)).permutation(count)
