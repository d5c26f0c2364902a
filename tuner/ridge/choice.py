"""What a head is solved with: the penalties and the kind of scores that leave-one-out says are best.

One eigendecomposition of the samples gives the scores of every sample left out by every penalty, exactly. Candidates
are compared by the likelihood of the labels at the best scale of the scores. In it a class counts by the root of its
number of samples: if each counted alike, the few samples of a rare one would decide (clothing, one class of ten: its
recall is 49 % then, but the others lose 1.8 points).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tuner.arrays import Array, Doubles, Labels
from tuner.ridge.calibrate import least_loss
from tuner.ridge.discriminant import Discriminant
from tuner.ridge.solve import class_means, left_out
from tuner.ridge.union import Domain, UnionSettings, both_rows, gate_targets
from tuner.targets.strata import one_hot

#: Penalties that are tried, in samples.
PENALTIES = tuple(float(10.0**power) for power in np.arange(0.0, 4.1, 0.5))
#: Candidates whose losses differ by less are equally good, as where all samples left out are right: the largest penalty
#: wins.
EQUAL = 0.002
#: Most samples that candidates are compared on, at equal distances.
MOST_COMPARED = 2000
#: Most directions in which samples are compared, random sums of more (Halko et al., 2011): work grows with the cube.
MOST_DIRECTIONS = 480


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Weighted samples in the basis of their principal components, where any penalty is a division.

    Attributes:
        values: Eigenvalues of their centred XᵀWX, float64 [r].
        rows: The samples less their mean in that basis, float64 [n, r].
        weights: float64 [n].
        size: Number of features.
    """

    values: Doubles
    rows: Doubles
    weights: Doubles
    size: int

    @classmethod
    def of(cls, features: Doubles, weights: Doubles) -> Self:
        """Decompose features, float64 [n, features], or their products, whichever are fewer."""
        size = features.shape[1]
        if min(features.shape) > MOST_DIRECTIONS:
            draw = np.random.default_rng(0).standard_normal
            features = features @ np.linalg.qr(features.T @ draw((len(features), MOST_DIRECTIONS)))[0]
        rows = features - weights @ features / weights.sum()
        rows *= np.sqrt(weights)[:, None]
        if len(rows) < rows.shape[1]:
            values, rows = np.linalg.eigh(rows @ rows.T)
            rows *= np.sqrt(np.maximum(values, 0.0))
        else:
            values, vectors = np.linalg.eigh(rows.T @ rows)
            rows = rows @ vectors
        return cls(np.maximum(values, 0.0), rows / np.sqrt(weights)[:, None], weights, size)

    def solved(self, targets: Doubles, ridge: float) -> tuple[Doubles, Doubles]:
        """Return what a ridge head answers to its samples, and their leverages; see `tuner.ridge.solve.left_out`.

        Args:
            targets: float64 [n, outputs].
            ridge: Penalty in samples.
        """
        total = self.weights.sum()
        mean = self.weights @ targets / total
        shrunk = 1 / (self.values + ridge * (self.values.sum() / total / self.size or 1.0))
        cross = self.rows.T @ (self.weights[:, None] * (targets - mean))
        return self.rows @ (shrunk[:, None] * cross) + mean, self.rows**2 @ shrunk + 1 / total


def chosen(local: Domain, known: Domain, settings: UnionSettings) -> UnionSettings:
    """Return settings with the penalties and the kind of scores that are best.

    Args:
        local: The user's samples; at least one.
        known: Those of what the model knows; without any the gate's penalty stays.
        settings: What else is set; a joint head stays one.
    """
    if settings.scores == "joint":
        features, labels, both = both_rows(local, known, settings.local_weight)
        ridge = _ridge_of(Spectrum.of(features, both), one_hot(labels, local.outputs), labels)
        return replace(settings, ridge=ridge, gate="none")
    weights = np.sqrt(local.weights)
    scores, ridge = _best({key: _loss(left, local.labels, weights) for key, left in _candidates(local)})
    if len(known) and settings.gate != "none":
        targets = gate_targets(local, known)
        spectrum = Spectrum.of(*both_rows(local, known, settings.local_weight)[::2])
        gate_ridge = _ridge_of(spectrum, targets, (targets > 0).astype(float))
        settings = replace(settings, gate_ridge=gate_ridge)
    else:
        settings = replace(settings, gate="none")
    return replace(settings, scores=scores, ridge=ridge)


def _candidates(local: Domain) -> Iterator[tuple[tuple[str, float], Doubles]]:
    """Yield each kind of scores and penalty with its scores of the local samples, each left out."""
    labels, weights = local.labels, local.weights
    targets = one_hot(labels, local.outputs)
    spectrum = Spectrum.of(local.features, weights)
    for ridge in PENALTIES:
        scores, leverages = spectrum.solved(targets, ridge)
        yield ("ridge", ridge), left_out(scores, leverages, targets, weights)
        if labels.ndim == 1:
            change = Discriminant.of(scores, labels, weights)
            yield ("discriminant", ridge), change.left_out(scores, leverages, labels, weights)
    yield ("means", UnionSettings().ridge), class_means(local.sums()).left_out(local.features, labels, weights)


def _best(losses: Mapping[tuple[str, float], float]) -> tuple[str, float]:
    """Return the candidate with the least loss: of equal ones that with the largest penalty."""
    least = min(losses.values())
    return max((key for key, loss in losses.items() if loss <= least + EQUAL), key=lambda key: key[1])


def _ridge_of(spectrum: Spectrum, targets: Doubles, labels: Labels) -> float:
    """Return the best penalty of a ridge head of some targets."""

    def loss(ridge: float) -> float:
        left = left_out(*spectrum.solved(targets, ridge), targets, spectrum.weights)
        return _loss(left, labels, spectrum.weights)

    return _best({("", ridge): loss(ridge) for ridge in PENALTIES})[1]


def _loss(scores: Doubles, labels: Labels, weights: Array) -> float:
    rows = slice(None, None, -(-len(labels) // MOST_COMPARED))
    return least_loss(scores[rows], labels[rows], weights[rows])
