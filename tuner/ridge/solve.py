"""The ridge head of some sums, and what it answers to a sample that is left out of them."""

from dataclasses import dataclass

import numpy as np

from tuner.arrays import Array, Doubles
from tuner.ridge.sums import Sums, one_hot

#: Rows that a triangular system is solved for at a time.
BLOCK = 128


@dataclass(frozen=True, slots=True, eq=False)
class LinearHead:
    """A linear layer.

    Attributes:
        weight: float64 [outputs, features], of features as they are, not of codes.
        bias: float64 [outputs].
    """

    weight: Doubles
    bias: Doubles

    def scores(self, features: Array) -> Doubles:
        """Return float64 [n, outputs]."""
        result: Doubles = features.astype(np.float64) @ self.weight.T + self.bias
        return result


@dataclass(frozen=True, slots=True, eq=False)
class RidgeHead:
    """A solved ridge head, with what leaving out a sample takes.

    Attributes:
        head: Minimises Σ ‖W x + b − t‖² + λ ‖W − W₀‖²; the bias is not penalised.
        gram: XᵀX + λI of centred features, float64 [features, features].
        mean: Mean of the features, float64 [features].
        count: Number of samples, or sum of their weights.
    """

    head: LinearHead
    gram: Doubles
    mean: Doubles
    count: float

    def left_out(self, features: Array, targets: Array, weights: Array | float = 1.0) -> Doubles:
        """Return the scores of samples of the sums, each by the head that the sums without it would give.

        Exact, and without solving anew: the leave-one-out residual is r / (1 − h), where h is the sample's leverage.

        Args:
            features: float [n, features], as the codes have them.
            targets: [n, outputs], as they were added.
            weights: What each sample counts in the sums.
        """
        centred = features.astype(np.float64) - self.mean
        leverage = _lengths(self.gram, centred) + 1 / self.count
        residual = np.asarray(targets, float) - self.head.scores(features)
        left = np.maximum(1 - np.asarray(weights) * leverage, 1e-9)
        result: Doubles = targets - residual / left[:, None]
        return result


def solve(sums: Sums, ridge: float, given: LinearHead | None = None) -> RidgeHead:
    """Return the ridge head of some sums.

    Args:
        sums: Of at least one sample.
        ridge: λ above 0, of features as they are.
        given: Head that the solution is pulled to, which stands for samples whose sums are not there; zero weights
            where it is None.
    """
    count, step = sums.count, sums.step
    total, mean = sums.gram[-1, :-1], sums.gram[-1, :-1] / count
    gram = (sums.gram[:-1, :-1] - np.outer(total, mean)) * step**2
    target = sums.cross[-1] / count
    cross = (sums.cross[:-1] - np.outer(mean, sums.cross[-1])) * step
    gram[np.diag_indices_from(gram)] += ridge
    if given is not None:
        cross = cross + ridge * given.weight.T
    occurring = cross.any(axis=0)
    weight = np.zeros_like(cross.T)
    weight[occurring] = np.linalg.solve(gram, cross[:, occurring]).T
    return RidgeHead(LinearHead(weight, target - weight @ (mean * step)), gram, mean * step, count)


def _lengths(gram: Doubles, rows: Doubles) -> Doubles:
    """Return xᵀ gram⁻¹ x of each row x, by gram = L Lᵀ as |L⁻¹ x|²: a third of the work of an inverse."""
    lower, solved, total = np.linalg.cholesky(gram), rows.T.copy(), np.zeros(len(rows))
    for begin in range(0, len(gram), BLOCK):
        here = slice(begin, begin + BLOCK)
        rest = solved[here] - lower[here, :begin] @ solved[:begin]
        solved[here] = np.linalg.inv(lower[here, here]) @ rest
        total += np.einsum("fn,fn->n", solved[here], solved[here])
    return total


def spread(sums: Sums) -> float:
    """Return the mean variance of a feature: λ = `spread` weighs as much as one sample does."""
    mean = sums.gram[-1, :-1] / sums.count
    variance = np.diag(sums.gram)[:-1] / sums.count - mean**2
    return float(variance.mean()) * sums.step**2


def regression_head(
    given: LinearHead, local: Sums, known: Sums, *, ridge: float, local_weight: float
) -> tuple[RidgeHead, float]:
    """Return the head of numbers, pulled to the given head: what no sample speaks against stays as it was.

    With it, what a local sample counts in its sums.

    Args:
        given: The model's head.
        local: Sums of the user's samples and their targets; of at least one sample.
        known: Sums of samples of the global data; of none where there are none.
        ridge: λ in samples: it weighs as much as so many samples do.
        local_weight: What all local samples count where those of the global data count one.
    """
    sums, weight = local, 1.0
    if known.count:
        share, total = local_weight / (1 + local_weight), local.count + known.count
        weight = share * total / local.count
        sums = local.weighted(weight) + known.weighted((1 - share) * total / known.count)
    return solve(sums, ridge * (spread(sums) or 1.0), given), weight


@dataclass(frozen=True, slots=True, eq=False)
class MeansHead:
    """The cosine to each class's mean, of features from which the mean of all is subtracted.

    Source: SimpleShot (Wang et al., 2019), CL2N; a sample's own length changes no order of its scores.

    Attributes:
        head: The linear layer.
        mean: Mean of all features, float64 [features].
        centred: Sum of each class's features less the mean of all, float64 [outputs, features].
        counts: Number of samples of each class, float64 [outputs].
    """

    head: LinearHead
    mean: Doubles
    centred: Doubles
    counts: Doubles

    def left_out(self, features: Array, labels: Array) -> Doubles:
        """Return the scores of samples of the sums, each without it in its own class's mean, float64 [n, outputs]."""
        rest = features.astype(np.float64) - self.mean
        scores = self.head.scores(features)
        rows, classes = np.nonzero(one_hot(labels, len(self.counts)))
        own = _unit(self.centred[classes] - rest[rows])
        scores[rows, classes] = np.einsum("nf,nf->n", own, rest[rows])
        return scores


def class_means(sums: Sums) -> MeansHead:
    """Return the head of class means of some sums, whose targets are ones and zeros; one without samples scores 0."""
    mean = sums.gram[-1, :-1] / sums.count * sums.step
    counts = sums.cross[-1]
    centred = sums.cross[:-1].T * sums.step - np.outer(counts, mean)
    weight = _unit(centred)
    return MeansHead(LinearHead(weight, -weight @ mean), mean, centred, counts)


def log_prior(counts: Array) -> Doubles:
    """Return the log of each class's share of some samples, each class counted once more than it occurred."""
    plus_one = np.asarray(counts, float) + 1
    result: Doubles = np.log(plus_one / plus_one.sum())
    return result


def log_odds(counts: Array, total: float) -> Doubles:
    """Return the log odds of each label among `total` samples, each counted once more with and without it."""
    with_it = np.asarray(counts, float) + 1
    result: Doubles = np.log(with_it) - np.log(total + 2 - with_it)
    return result


def _unit(rows: Doubles) -> Doubles:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Doubles = rows / np.where(length > 0, length, 1.0)
    return result
