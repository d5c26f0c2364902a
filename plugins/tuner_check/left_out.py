"""Answers to samples that are left out of a ridge head on the given model's features."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from tuner.arrays import Array, Doubles, Labels, RowNumbers
from tuner.ridge.calibrate import mixture
from tuner.ridge.solve import solve, spread
from tuner.ridge.sums import Sums, one_hot

#: Penalties that are compared, in samples.
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
#: Smallest singular value that counts, relative to the largest.
SMALLEST = 1e-6


@dataclass(frozen=True, eq=False)
class Evidence:
    """Samples with a ridge head that weighs all classes alike, whatever their numbers.

    Attributes:
        x: Features, turned so that none is without variance, the largest variance first: float64 [n, directions].
        y: Classes, int64 [n], each of which occurs.
        penalty: λ in samples.
    """

    x: Doubles
    y: Labels
    penalty: float

    @classmethod
    def of(cls, features: Array, y: Labels) -> Self:
        """Turn features, float [n, features], and choose the penalty of the best left-out answers; the largest such."""
        left, values, _ = np.linalg.svd(features - features.mean(axis=0, dtype=np.float64), full_matrices=False)
        count = max(1, int((values > SMALLEST * values[0]).sum()))
        x = left[:, :count] * values[:count]
        tried = [cls(x, y, penalty) for penalty in PENALTIES]
        return max(tried, key=lambda one: (round(one.accuracy, 9), one.penalty))

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    @property
    def counts(self) -> RowNumbers:
        """Number of samples of each class, int64 [classes]."""
        return np.bincount(self.y)

    @cached_property
    def scores(self) -> Doubles:
        """Scores of all samples, each left out, float64 [n, classes]."""
        return self.answers(np.arange(len(self.y)))

    @cached_property
    def found(self) -> Doubles:
        """Share of each class's samples that are found where they are left out, float64 [classes]."""
        return np.bincount(self.y, self.scores.argmax(axis=1) == self.y) / self.counts

    @property
    def accuracy(self) -> float:
        """Mean of `found`."""
        return float(self.found.mean())

    def answers(self, rows: RowNumbers, directions: int | None = None) -> Doubles:
        """Return scores of all samples by the head of some, float64 [n, classes]; each of these is left out itself.

        With `directions`, only so many of the features are used.
        """
        x, y = self.x[:, :directions], self.y[rows]
        counts = np.bincount(y, minlength=self.classes)
        weights = len(rows) / np.count_nonzero(counts) / counts[y]
        root, targets = np.sqrt(weights)[:, None], one_hot(y, self.classes)
        given = np.column_stack([x[rows], np.ones(len(rows))]) * root
        sums = Sums(given.T @ given, given.T @ (targets * root), 1.0)
        solved = solve(sums, self.penalty * (spread(sums) or 1.0))
        result = solved.head.scores(x)
        result[rows] = solved.left_out(x[rows], targets, weights)
        return result

    def probabilities(self) -> Doubles:
        """Return calibrated probabilities of all samples, each left out, float64 [n, classes]."""
        zeros = np.zeros(self.classes)
        scale = mixture(self.scores[None], zeros, self.y, np.ones(len(self.y)), np.ones(1))[0]
        logits = max(scale, 0.0) * self.scores
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def contradicted(self, times: float) -> RowNumbers:
        """Return the samples that another class is so many times as probable for, int64; the surest come first."""
        found = self.probabilities()
        odds = found.max(axis=1) / found[np.arange(len(self.y)), self.y]
        order = np.argsort(-odds, kind="stable")
        result: RowNumbers = order[odds[order] >= times]
        return result
