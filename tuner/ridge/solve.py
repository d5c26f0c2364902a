"""The ridge head of some sums, and what it answers to a sample that is left out of them."""

from dataclasses import dataclass

import numpy as np

from tuner.arrays import Array, Doubles
from tuner.ridge.sums import Sums, blocks
from tuner.targets.strata import one_hot

#: Features that a triangular system is solved for at a time.
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
        result: Doubles = features.astype(np.float64, copy=False) @ self.weight.T + self.bias
        return result


@dataclass(frozen=True, slots=True, eq=False)
class RidgeHead:
    """A solved ridge head, with what leaving out a sample takes.

    Attributes:
        head: Minimises Σ ‖W x + b − t‖² + λ ‖W − W₀‖²; the bias is not penalised.
        lower: L of XᵀX + λI = L Lᵀ of centred features, float64 [features, features]; not used above the diagonal.
        mean: Mean of the features, float64 [features].
        count: Number of samples, or sum of their weights.
    """

    head: LinearHead
    lower: Doubles
    mean: Doubles
    count: float

    def left_out(self, features: Array, targets: Array, weights: Array | float = 1.0) -> Doubles:
        """Return the scores of samples of the sums, each by the head that the sums without it would give.

        Exact, and without solving anew; see `left_out`. The others keep their weights.

        Args:
            features: float [n, features], as the codes have them.
            targets: [n, outputs], as they were added.
            weights: What each sample counts in the sums.
        """
        return left_out(self.head.scores(features), self.leverages(features), np.asarray(targets, float), weights)

    def leverages(self, features: Array, step: float = 1.0) -> Doubles:
        """Return how much of its own score a sample that counts one is, float64 [n]; of codes, a `step` each."""
        return _lengths(self.lower, features, step, self.mean) + 1 / self.count


def left_out(scores: Doubles, leverages: Doubles, targets: Doubles, weights: Array | float = 1.0) -> Doubles:
    """Return ridge scores of samples, each without it: the residual r becomes r / (1 − w h), where h is its leverage.

    Args:
        scores: Of the head that has seen them, float64 [n, outputs].
        leverages: float64 [n].
        targets: float64 [n, outputs].
        weights: What each sample counts, float64 [n].
    """
    rest = np.maximum(1 - np.asarray(weights) * leverages, 1e-9)
    result: Doubles = targets - (targets - scores) / rest[..., None]
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
    gram = np.outer(total, -mean)  # in place, as each copy may take as much memory as the model
    gram += sums.gram[:-1, :-1]
    gram *= step**2
    target = sums.cross[-1] / count
    cross = (sums.cross[:-1] - np.outer(mean, sums.cross[-1])) * step
    gram[np.diag_indices_from(gram)] += ridge
    if given is not None:
        cross = cross + ridge * given.weight.T
    occurring = cross.any(axis=0)
    weight = np.zeros_like(cross.T)
    lower = _factor(gram)
    solved = _forward(lower, cross[:, occurring])
    for begin in reversed(range(0, len(lower), BLOCK)):
        here, after = slice(begin, begin + BLOCK), slice(begin + BLOCK, None)
        rest = solved[here] - lower[after, here].T @ solved[after]
        solved[here] = np.linalg.solve(lower[here, here].T, rest)
    weight[occurring] = solved.T
    return RidgeHead(LinearHead(weight, target - weight @ (mean * step)), lower, mean * step, count)


def _factor(gram: Doubles) -> Doubles:
    """Return L of gram = L Lᵀ in the place of gram, where numpy's own has two copies of it."""
    for begin in range(0, len(gram), BLOCK):
        here, after = slice(begin, begin + BLOCK), slice(begin + BLOCK, None)
        gram[begin:, here] -= gram[begin:, :begin] @ gram[here, :begin].T
        gram[here, here] = np.linalg.cholesky(gram[here, here])
        gram[after, here] = np.linalg.solve(gram[here, here], gram[after, here].T).T
    return gram


def _forward(lower: Doubles, columns: Doubles) -> Doubles:
    """Return L⁻¹ of some columns in their place."""
    for begin in range(0, len(lower), BLOCK):
        here = slice(begin, begin + BLOCK)
        columns[here] = np.linalg.solve(lower[here, here], columns[here] - lower[here, :begin] @ columns[:begin])
    return columns


def _lengths(lower: Doubles, features: Array, step: float, mean: Doubles) -> Doubles:
    """Return |L⁻¹ x|² of each row less the mean, float64 [n]: a third of the work of an inverse."""
    total = np.zeros(len(features))
    for rows in blocks(len(features)):
        solved = _forward(lower, features[rows].T * step - mean[:, None])
        total[rows] = np.einsum("fn,fn->n", solved, solved)
    return total


def spread(sums: Sums) -> float:
    """Return the mean variance of a feature: λ = `spread` weighs as much as one sample does."""
    mean = sums.gram[-1, :-1] / sums.count
    variance = np.diag(sums.gram)[:-1] / sums.count - mean**2
    return float(variance.mean()) * sums.step**2


@dataclass(frozen=True, slots=True, eq=False)
class MeansHead:
    """The cosine to each class's mean, of features from which the mean of all is subtracted.

    Source: SimpleShot (Wang et al., 2019), CL2N; a sample's own length changes no order of its scores.

    Attributes:
        head: The linear layer.
        mean: Mean of all features, float64 [features].
        centred: Sum of each class's features less the mean of all, float64 [outputs, features].
        counts: Number of samples of each class, or sum of their weights, float64 [outputs].
    """

    head: LinearHead
    mean: Doubles
    centred: Doubles
    counts: Doubles

    def left_out(self, features: Array, labels: Array, weights: Array | None = None) -> Doubles:
        """Return the scores of samples of the sums, each without it in its own class's mean, float64 [n, outputs].

        `weights` are what each counts in the sums, float64 [n].
        """
        scores = self.head.scores(features)
        places = np.argwhere(one_hot(labels, len(self.counts)))
        for rows, classes in (places[here].T for here in blocks(len(places))):
            rest = features[rows] - self.mean
            own = _unit(self.centred[classes] - (rest if weights is None else rest * weights[rows, None]))
            scores[rows, classes] = np.einsum("nf,nf->n", own, rest)
        return scores


def class_means(sums: Sums) -> MeansHead:
    """Return the head of class means of some sums, whose targets are ones and zeros; one without samples scores 0."""
    mean = sums.gram[-1, :-1] / sums.count * sums.step
    counts = sums.cross[-1]
    centred = sums.cross[:-1].T * sums.step - np.outer(counts, mean)
    weight = _unit(centred)
    return MeansHead(LinearHead(weight, -weight @ mean), mean, centred, counts)


def _unit(rows: Doubles) -> Doubles:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Doubles = rows / np.where(length > 0, length, 1.0)
    return result
