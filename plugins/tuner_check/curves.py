"""What further samples of a class would bring, from how much the last ones brought."""

from dataclasses import dataclass

import numpy as np

from tuner.arrays import Array, Doubles, RowNumbers
from tuner_check.left_out import Evidence

#: Shares of a class's samples that the head is solved with, and how often each share is drawn.
RUNGS, DRAWS = (0.25, 0.5, 1.0), 3
#: Directions of the features that are used: the head is solved some hundred times.
DIRECTIONS = 256
#: Before anything is seen, the log odds grow by half of the samples' logarithm, as errors fall with the square root of
#: the samples; give or take three quarters.
SLOPE, UNSURE = 0.5, 0.75
#: Fewest samples of a class whose curve is looked at.
FEWEST = 4
#: Samples of the curve's uncertainty, and the interval's ends.
SAMPLES, ENDS = 4000, (0.05, 0.5, 0.95)
#: Steps of Newton's method, and the longest.
STEPS, LONGEST = 50, 2.0


@dataclass(frozen=True, slots=True)
class Gain:
    """By how many points further samples would raise the share that is found: ends of a 90 % interval, and its middle.

    Attributes:
        more: Number of further samples.
        low: 5 in 100 gains are smaller.
        likely: The median.
        high: 5 in 100 gains are larger.
    """

    more: int
    low: float
    likely: float
    high: float

    def text(self) -> str:
        """Return the gain in words."""
        low, high = (f"{round(value):+d}" if round(value) else "0" for value in (self.low, self.high))
        if round(self.high) < 1:
            return f"{self.more} more: less than a point"
        span = f"{low} to {high} points" if low != high else f"{low} {'point' if low == '+1' else 'points'}"
        return f"{self.more} more: {span}" + ("" if round(self.low) >= 1 else ", the data cannot tell")


def gain_of_class(evidence: Evidence, row: int, more: int) -> Gain | None:
    """Return what `more` samples of a class would bring to it, all others as they are; None where it has too few."""
    return _gain(evidence, np.array([row]), more)


def gain_of_all(evidence: Evidence, more: int) -> Gain | None:
    """Return what `more` samples of each class would bring in the mean over classes."""
    return _gain(evidence, np.arange(evidence.classes), more)


def _gain(evidence: Evidence, classes: RowNumbers, more: int) -> Gain | None:
    """Return what further samples of some classes would bring to these, where their other samples are thinned alike."""
    counts = evidence.counts[classes]
    if counts.min() < FEWEST:
        return None
    own = [np.flatnonzero(evidence.y == row) for row in classes]
    rest = np.flatnonzero(~np.isin(evidence.y, classes))
    generator, found = np.random.default_rng(0), list[float]()
    for share in RUNGS:
        drawn = list[float]()
        for _ in range(DRAWS if share < 1 else 1):
            some = [generator.permutation(rows)[: max(1, round(share * len(rows)))] for rows in own]
            right = evidence.answers(np.concatenate([rest, *some]), DIRECTIONS).argmax(axis=1) == evidence.y
            drawn.append(float(np.mean([right[rows].mean() for rows in own])))
        found.append(float(np.mean(drawn)))
    theta, covariance = _curve(np.log(RUNGS), np.array(found), float(counts.sum()))
    level, slope = generator.multivariate_normal(theta, covariance, SAMPLES).T
    factor = float(np.mean(np.log((counts + more) / counts)))
    low, likely, high = 100 * np.quantile(_logistic(level + slope * factor) - _logistic(level), ENDS)
    return Gain(more, float(low), float(likely), float(high))


def _curve(logs: Array, found: Array, count: float) -> tuple[Doubles, Doubles]:
    """Return level and slope of the log odds over the samples' logarithm, float64 [2], and their covariance [2, 2].

    The rungs have the same `count` samples: together they count once.
    """
    weight = count / len(logs)
    parts, share = np.column_stack([np.ones(len(logs)), logs]), (found * weight + 0.5) / (weight + 1)
    prior, theta = np.diag([1e-6, UNSURE**-2]), np.array([0.0, SLOPE])
    for _ in range(STEPS):
        expected = _logistic(parts @ theta)
        second = parts.T @ ((weight * expected * (1 - expected))[:, None] * parts) + prior
        gradient = parts.T @ (weight * (expected - share)) + prior @ (theta - [0.0, SLOPE])
        theta = theta - np.clip(np.linalg.solve(second, gradient), -LONGEST, LONGEST)
    return theta, np.linalg.inv(second)


def _logistic(values: Array) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-values)))
