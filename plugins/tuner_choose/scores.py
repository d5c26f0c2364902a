"""How good a network is for a user's samples: a head in closed form, and what it answers to each sample left out."""

import math
from dataclasses import dataclass

import numpy as np

from tuner.arrays import Array, Doubles, Labels
from tuner.metrics import Z_95
from tuner.ridge.choice import PENALTIES, Spectrum
from tuner.ridge.solve import left_out
from tuner.targets import Targets
from tuner.targets.strata import one_hot

#: Largest difference of scores that is worth no dearer prediction, and the largest standard error of one to go by.
MARGIN, MOST_ERROR = 0.005, 0.02


def correct(features: Array, labels: Labels, outputs: int, targets: Targets) -> Doubles:
    """Return how far the answer to each sample is right of a ridge head that is solved for without it, float64 [n].

    It is exact: nothing is projected, and no head is solved for twice. The penalty is the one that has most samples
    right, or else the least squared error.

    Args:
        features: What the network's head reads, float32 [n, features].
        labels: As the task has them.
        outputs: Number of outputs of the head.
        targets: What a label is.
    """
    weights, truth = np.ones(len(labels)), one_hot(labels, outputs)
    spectrum, found = _spectrum(features.astype(np.float64), weights), list[tuple[float, float, Doubles]]()
    for ridge in PENALTIES:
        answers = left_out(*spectrum.solved(truth, ridge), truth, weights)
        scores = targets.from_regressed(answers).astype(np.float32)
        right = targets.correctness(scores, labels)
        # not the likelihood at the best scale: that may be below 0, which turns answers that are all wrong around
        hits, error = targets.hits(scores, labels), float(((answers - truth) ** 2).mean())
        found.append((0.0 if hits is None else float(hits.mean()), -error, right))
    return max(found, key=lambda one: one[:2])[2]


def _spectrum(features: Doubles, weights: Doubles) -> Spectrum:
    """Return the decomposition of all directions; `Spectrum.of` keeps some of them, which is quicker."""
    rows = features - features.mean(axis=0)
    if len(rows) < rows.shape[1]:
        values, vectors = np.linalg.eigh(rows @ rows.T)
        rows = vectors * np.sqrt(np.maximum(values, 0.0))
    else:
        values, vectors = np.linalg.eigh(rows.T @ rows)
        rows = rows @ vectors
    return Spectrum(np.maximum(values, 0.0), rows, weights, features.shape[1])


def interval(right: Doubles, targets: Targets) -> tuple[float, float]:
    """Return the 95 % interval of a score, the mean of what `correct` returns."""
    score, count = float(right.mean()), len(right)
    half = Z_95 * float(right.std()) / math.sqrt(count)
    return targets.interval(score, count) or (score - half, score + half)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of scores on the same samples, with its 95 % interval."""

    gain: float
    low: float
    high: float

    @classmethod
    def of(cls, first: Doubles, second: Doubles, targets: Targets) -> "Difference":
        """Return by how much the first score is larger; both are of the first samples that both have."""
        count = min(len(first), len(second))
        gains = first[:count] - second[:count]
        return cls(float(gains.mean()), *targets.gain_interval(gains))

    @property
    def is_real(self) -> bool:
        """Whether the first is better, and not by chance."""
        return self.low > 0

    @property
    def is_likely(self) -> bool:
        """Whether it is more than half a standard error."""
        return self.gain > self._error / 2

    @property
    def is_small(self) -> bool:
        """Whether it is worth no dearer prediction, and known well enough to say so."""
        return self.gain <= MARGIN and self._error <= MOST_ERROR

    @property
    def _error(self) -> float:
        return (self.gain - self.low) / Z_95

    def __str__(self) -> str:
        return f"{100 * self.gain:+.1f} points ({100 * self.low:+.1f} to {100 * self.high:+.1f})"
