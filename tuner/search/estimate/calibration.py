"""How far estimates are off, and how sure that is: learned from what finished trials measured.

The logarithm of measured over expected is a sum of small errors, of the estimate's parts, the plan's kind and its cut,
and noise. Each has a prior spread, so that one trial moves its own kind most, and a kind never seen stays as unsure as
at the start: Bayesian linear regression (Bishop 2006, section 3.3). Outliers move the errors less, by Huber's weights
(1964), and count in the noise. Quantiles are Student's t: a conformal one at 95 % needs 19 trials.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from tuner.arrays import Doubles

#: What an estimate's error depends on: by name, the standard deviation of that error before any trial.
Errors = Mapping[Hashable, float]
#: The noise that is assumed before any trial counts as much as this many trials.
PRIOR_TRIALS = 4
#: A residual of more standard deviations counts less.
HUBER = 2.0
ROUNDS = 4


class Observation(NamedTuple):
    """What a finished trial shows: the errors that its estimate may have, and log(measured / expected)."""

    errors: Errors
    log_ratio: float


class Calibration:
    """Corrects one kind of estimate; ``noise`` is assumed of log(measured / expected) before any trial shows it."""

    def __init__(self, noise: float) -> None:
        self._prior_noise = self._noise = noise
        self._places: dict[Hashable, int] = {}
        self._mean: Doubles = np.zeros(0)
        self._covariance: Doubles = np.zeros((0, 0))
        self.trials = 0

    def fit(self, observations: Sequence[Observation]) -> None:
        """Learn from finished trials, anew; `trials` is then their number."""
        self.trials, self._noise = len(observations), self._prior_noise
        names = dict.fromkeys(name for one in observations for name in one.errors)
        self._places = {name: place for place, name in enumerate(names)}
        inputs = np.zeros((len(observations), len(names)))
        for row, one in zip(inputs, observations, strict=True):
            for name, spread in one.errors.items():
                row[self._places[name]] = spread
        ratios, weights = np.array([one.log_ratio for one in observations]), np.ones(len(observations))
        for _ in range(ROUNDS):
            weighed = inputs * (weights / self._noise**2)[:, None]
            self._covariance = np.asarray(np.linalg.inv(weighed.T @ inputs + np.eye(len(names))), np.float64)
            self._mean = self._covariance @ (weighed.T @ ratios)
            rest: Doubles = ratios - inputs @ self._mean
            free = max(0.0, float(weights.sum() - np.trace(self._covariance @ (weighed.T @ inputs))))
            squares = PRIOR_TRIALS * self._prior_noise**2 + float(rest @ rest)
            self._noise = math.sqrt(squares / (PRIOR_TRIALS + free))
            weights = np.minimum(1.0, HUBER * self._noise / np.maximum(np.abs(rest), 1e-12))

    def factor(self, errors: Errors) -> float:
        """Return the factor that corrects an estimate: the median of measured over expected."""
        places = self._places
        return math.exp(sum(spread * self._mean[places[name]] for name, spread in errors.items() if name in places))

    def spread(self, errors: Errors, level: float) -> float:
        """Return by which factor measured values are at most above, or below, the corrected estimate, at a level."""
        known = [(self._places[name], spread) for name, spread in errors.items() if name in self._places]
        places, spreads = [place for place, _ in known], np.array([spread for _, spread in known])
        variance = float(spreads @ self._covariance[np.ix_(places, places)] @ spreads) if known else 0.0
        variance += sum(spread**2 for name, spread in errors.items() if name not in self._places)
        deviation = math.sqrt(variance + self._noise**2)
        return math.exp(float(stdtrit(PRIOR_TRIALS + self.trials, level)) * deviation)
