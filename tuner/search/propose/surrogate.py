"""What a plan is expected to score: a Gaussian process over the knobs of plans that were tried.

Optuna's own takes a fifth of a second a suggestion; this one scores a few dozen given plans in milliseconds, as it has
fixed noise, one set of length scales for all scores, and no search over the knobs.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtr

from tuner.arrays import Doubles
from tuner.plan.parts import Scalar
from tuner.plugin.knobs import Choice, Knob

#: Length scale that every knob begins with: knobs are scaled to [0, 1], and options that are no numbers are 1 apart.
LENGTH, SHORTEST, LONGEST = 0.5, 0.1, 6.0
#: Variance of the noise of a score, whose own variance is 1.
NOISE = 0.03
#: Scores that hardly differ are not blown up beyond this standard deviation.
LEAST_SPREAD = 0.05
#: Length scales are fitted when there are so many times as many plans as the last time, in so many rounds.
REFIT, ROUNDS, STEP = 1.5, 2, 1.6
FIRST_FIT = 4
#: The last plans that are learned from: time grows with the cube of their number, memory with its square.
LEARNS_FROM = 256


class Coordinates:
    """Plans as points: one column for each searched knob that is a number, one for each option of the others."""

    def __init__(self, knobs: Mapping[str, Knob]) -> None:
        self._knobs = {name: knob for name, knob in sorted(knobs.items()) if not knob.fixed}
        groups = [place for place, knob in enumerate(self._knobs.values()) for _ in _columns(knob, None)]
        self.groups = np.array(groups, np.int64)

    def points(self, plans: Sequence[Mapping[str, Scalar]]) -> Doubles:
        """Return float64 [n, columns]; a knob that a plan does not have is in the middle."""
        rows = [
            [column for name, knob in self._knobs.items() for column in _columns(knob, values.get(name))]
            for values in plans
        ]
        return np.array(rows, np.float64).reshape(len(plans), len(self.groups))


def _columns(knob: Knob, value: Scalar | None) -> list[float]:
    if isinstance(knob, Choice):
        if any(isinstance(option, str | bool) for option in knob.options):
            return [math.sqrt(0.5) * (value == option) for option in knob.options]
        ordered = sorted(knob.options)
        return [ordered.index(value) / (len(ordered) - 1) if value in ordered else 0.5]
    if value is None or isinstance(value, str):
        return [0.5]
    inside = min(max(float(value), knob.low), knob.high)
    if knob.log:
        return [math.log(inside / knob.low) / math.log(knob.high / knob.low)]
    return [(inside - knob.low) / (knob.high - knob.low)]


class Surrogate:
    """Predicts scores from those of other plans."""

    def __init__(self, coordinates: Coordinates) -> None:
        self._coordinates = coordinates
        self._fitted: tuple[int, Doubles] = (0, np.empty(0))

    def fit(self, plans: Sequence[Mapping[str, Scalar]], scores: Doubles, counts: Sequence[int] = ()) -> None:
        """Learn from the last plans, whose scores are float64 [n, m].

        The length scales follow from the first plans, so that they change rarely. What ``counts`` of samples cannot
        tell apart is noise.
        """
        self._scales = self._likeliest(plans[:LEARNS_FROM], scores[:LEARNS_FROM])
        self._points, scores = self._coordinates.points(plans[-LEARNS_FROM:]), scores[-LEARNS_FROM:]
        self._mean, spread = scores.mean(axis=0), scores.std(axis=0)
        self._spread = np.maximum(spread, LEAST_SPREAD)
        errors = np.clip(1 - scores.max(axis=0), 0.0, 1.0)
        sampling = [share * (1 - share) / count for share, count in zip(errors, counts, strict=False) if count]
        noise = max([NOISE, *(variance / wide**2 for variance, wide in zip(sampling, self._spread, strict=False))])
        scaled = (scores - self._mean) / self._spread
        self._factor, self._weights, _ = _solved(self._points, scaled, self._scales, noise)

    def predict(self, plans: Sequence[Mapping[str, Scalar]]) -> tuple[Doubles, Doubles]:
        """Return mean and standard deviation of the scores of some plans, each float64 [n, m]."""
        near = _kernel(self._coordinates.points(plans) / self._scales, self._points / self._scales)
        known = np.linalg.solve(self._factor, near.T)
        left = np.sqrt(np.maximum(1.0 - np.square(known).sum(axis=0), 1e-6))
        return self._mean + near @ self._weights * self._spread, left[:, None] * self._spread

    def _likeliest(self, plans: Sequence[Mapping[str, Scalar]], scores: Doubles) -> Doubles:
        """Return a length scale for each column: those under which the scores of the first plans are likeliest."""
        groups, count = self._coordinates.groups, FIRST_FIT
        scales = np.full(groups.max(initial=-1) + 1, LENGTH)
        if len(scores) < FIRST_FIT:
            return scales[groups]
        while math.ceil(count * REFIT) <= len(scores):
            count = math.ceil(count * REFIT)
        if self._fitted[0] == count:
            return self._fitted[1]
        first = scores[:count]
        first = (first - first.mean(axis=0)) / np.maximum(first.std(axis=0), LEAST_SPREAD)
        points = self._coordinates.points(plans[:count])

        def likelihood(tried: Doubles) -> float:
            prior = 0.5 * float(np.square(np.log(tried / LENGTH)).sum())
            return _solved(points, first, tried[groups])[2] - prior

        best = likelihood(scales)
        for _ in range(ROUNDS):
            for place in range(len(scales)):
                for step in (1 / STEP, STEP, STEP**3):
                    tried = scales.copy()
                    tried[place] = np.clip(tried[place] * step, SHORTEST, LONGEST)
                    if (value := likelihood(tried)) > best:
                        best, scales = value, tried
        self._fitted = count, scales[groups]
        return self._fitted[1]


def _kernel(a: Doubles, b: Doubles) -> Doubles:
    """Return Matérn's kernel of smoothness 5/2 between points, float64 [n, m]."""
    squared = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * a @ b.T
    distance = np.sqrt(5.0 * np.maximum(squared, 0.0))
    kernel: Doubles = (1.0 + distance + np.square(distance) / 3.0) * np.exp(-distance)
    return kernel


def _solved(points: Doubles, scores: Doubles, scales: Doubles, noise: float = NOISE) -> tuple[Doubles, Doubles, float]:
    """Return the factor of the kernel matrix, the weights of the points, and the log likelihood of the scores."""
    scaled = points / scales
    factor = np.asarray(np.linalg.cholesky(_kernel(scaled, scaled) + noise * np.eye(len(points))), np.float64)
    weights: Doubles = np.linalg.solve(factor.T, np.linalg.solve(factor, scores))
    fits = -0.5 * float((scores * weights).sum())
    return factor, weights, fits - scores.shape[1] * float(np.log(np.diag(factor)).sum())


def expected_gain(
    mean: Doubles, deviation: Doubles, known: Sequence[tuple[float, ...]], most: float = math.inf
) -> Doubles:
    """Return by how much plans are expected to enlarge the area under a front: exact for independent normal scores.

    Their mean and deviation, float64 [n, 1 or 2], are of local and, where there is any, global accuracy; no score is
    above ``most``. The area beyond the front of known scores is cut into strips; in each, the expectation is a product
    of two of one variable. Source: expected hypervolume improvement; Emmerich, Deutz and Klinkenberg 2011.
    """
    front: list[tuple[float, float]] = []
    for local, global_ in sorted({(*score, 1.0)[:2] for score in known}, reverse=True):
        if not front or global_ > front[-1][1]:
            front.append((local, global_))
    front.reverse()  # the local accuracy ascends, the global one descends
    begins = [0.0, *(local for local, _ in front)]
    heights = [*(global_ for _, global_ in front), 0.0]
    beyond = [_between(mean[:, 0], deviation[:, 0], begin, most) for begin in begins] + [np.zeros(len(mean))]
    if mean.shape[1] == 1:
        return beyond[-2]
    strips = (
        (beyond[place] - beyond[place + 1]) * _between(mean[:, 1], deviation[:, 1], height, most)
        for place, height in enumerate(heights)
    )
    gains: Doubles = np.sum(list(strips), axis=0)
    return gains


def _between(mean: Doubles, deviation: Doubles, bound: float, most: float) -> Doubles:
    """Return by how much normal values are expected to lie above a bound, where none counts for more than `most`."""
    above = _above(mean, deviation, bound)
    return above if math.isinf(most) else above - _above(mean, deviation, most)


def _above(mean: Doubles, deviation: Doubles, bound: float) -> Doubles:
    """Return by how much normal values are expected to lie above a bound."""
    z = (mean - bound) / deviation
    above: Doubles = deviation * np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi) + (mean - bound) * ndtr(z)
    return above
