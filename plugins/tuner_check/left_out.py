"""Answers to samples that are left out of a ridge head on the given model's features."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from tuner.arrays import Array, Doubles, Labels, RowNumbers
from tuner.ridge.solve import solve, spread
from tuner.ridge.sums import Sums
from tuner.targets.strata import one_hot

#: Penalties that are compared, in samples.
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
#: Smallest singular value that counts, relative to the largest.
SMALLEST = 1e-6
#: Scales of scores, over their root mean square, and shares of wrong labels, which are compared.
SCALES, SHARES = np.geomspace(0.3, 200, 60), (0.0, *np.geomspace(2e-4, 0.4, 24))
#: Probability below which a label counts as this probable: no likelihood is then infinite.
LEAST = 1e-300


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

    @cached_property
    def probabilities(self) -> Doubles:
        """Calibrated probabilities of the classes of all samples, each left out, float64 [n, classes]."""
        return self._calibrated[0]

    @cached_property
    def wrong(self) -> Doubles:
        """How probable it is that each label is wrong, float64 [n].

        Wrong labels are taken to be any other class alike. How many there are has the largest likelihood, together with
        the scale of the scores: a head that is often unsure explains a contradiction, and one that is seldom does not.
        """
        probabilities, share = self._calibrated
        return _wrong(probabilities[np.arange(len(self.y)), self.y], share, self.classes)

    @cached_property
    def _calibrated(self) -> tuple[Doubles, float]:
        """The probabilities, and the share of wrong labels."""
        rows, size = np.arange(len(self.y)), np.sqrt((self.scores**2).mean()) + np.finfo(float).tiny
        best, result = -np.inf, (np.full_like(self.scores, 1 / self.classes), 0.0)
        for scale in SCALES:
            powers = np.exp(scale / size * (self.scores - self.scores.max(axis=1, keepdims=True)))
            found = powers / powers.sum(axis=1, keepdims=True)
            own = found[rows, self.y]
            for share in SHARES:
                chance = (1 - share) * own + share * (1 - own) / (self.classes - 1)
                if (likelihood := np.log(np.maximum(chance, LEAST)).sum()) > best:
                    best, result = likelihood, (found, float(share))
        return result

    def doubted(self, least: float) -> RowNumbers:
        """Return the samples whose label is wrong with at least a probability, int64; the likeliest come first."""
        order = np.argsort(-self.wrong, kind="stable")
        result: RowNumbers = order[self.wrong[order] >= least]
        return result


def _wrong(own: Doubles, share: float, classes: int) -> Doubles:
    """Return how probable it is that labels are wrong, by the probability of each and the share of wrong ones."""
    wrong = share * (1 - own) / (classes - 1)
    return np.asarray(wrong / np.maximum((1 - share) * own + wrong, LEAST))
