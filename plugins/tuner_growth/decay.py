"""Exponential decays ``D(x) = a·bˣ + c``, fitted to growth scores by least squares.

Source: MDLdroidLite (SenSys 2020), section "growth model"; bounds a ∈ [0, 100], b ∈ (0, 1), c ∈ [0, 10].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
MOST_A = 100.0
MOST_C = 10.0
#: ln τ of b = exp(−1/τ): from a decay within a tenth of a step to one that is flat over thousands.
LOG_TAU = np.linspace(math.log(0.1), math.log(1e5), 40)
#: Refinements of the grid around its best point, and the places of each.
ZOOMS = 2
STEPS = np.linspace(0, 1, 65)
TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Decay:
    """``a·bˣ + c``."""

    a: float
    b: float
    c: float

    def at(self, x: float) -> float:
        """Return the value at `x`."""
        return float(self.a * self.b**x + self.c)

    def mean(self, begin: float) -> float:
        """Return the mean over ``[begin, begin + 1)``: ``a·b^begin·(1 − b)/(−ln b) + c``."""
        slope = -math.log(self.b)
        return float(self.a * self.b**begin * -math.expm1(-slope) / slope + self.c)


def fit(x: Sequence[float], y: Sequence[float]) -> Decay:
    """Return the decay nearest to the points in the sense of least squares; see `fits`.

    Raises:
        ValueError: There is no point, or not one y for each x.
    """
    return fits([(x, y)])[0]


def fits(points: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[Decay, ...]:
    """Return the decays nearest to several sets of points in the sense of least squares, all fitted at once.

    For a given b the problem is linear in a and c and solved exactly within their bounds, so only b is searched: over a
    grid, as the error has flat stretches, then over finer ones around the best. A general least-squares routine
    (`scipy.optimize.curve_fit`) takes longer than a controller may, and starts from a guess.

    Args:
        points: Epochs or widths, and as many scores, of each decay.

    Raises:
        ValueError: A set has no point, or not one y for each x.
    """
    for places, scores in points:
        if not places or len(places) != len(scores):
            raise ValueError(
                f"a fit needs as many scores as points and at least one, got {len(places)} points and "
                f"{len(scores)} scores"
            )
    most = max(len(places) for places, _ in points)
    x, y, present = np.zeros((3, len(points), most))  # [fits, most]; padding weighs nothing
    for row, (places, scores) in enumerate(points):
        x[row, : len(places)], y[row, : len(places)], present[row, : len(places)] = places, scores, 1
    weights = np.stack([present, y], axis=2)
    sums = np.stack([present.sum(axis=1), y.sum(axis=1), (y * y).sum(axis=1)])[:, :, None]
    rows = np.arange(len(points))
    grid = np.broadcast_to(LOG_TAU, (len(points), len(LOG_TAU)))
    for zoom in range(ZOOMS + 1):
        log_b = -np.exp(-grid)
        powers = np.exp(log_b[:, :, None] * x[:, None, :]) * present[:, None, :]  # [fits, b's, most]
        a, c, errors = _linear(powers, weights, sums)
        best = errors.reshape(len(points), -1).argmin(axis=1)
        at = best % grid.shape[1]
        if zoom < ZOOMS:
            low, high = grid[rows, np.maximum(at - 1, 0)], grid[rows, np.minimum(at + 1, grid.shape[1] - 1)]
            grid = low[:, None] + (high - low)[:, None] * STEPS
    best_a, best_c = (value.reshape(len(points), -1)[rows, best] for value in (a, c))
    best_b = np.exp(log_b[rows, at])
    return tuple(Decay(*map(float, numbers)) for numbers in zip(best_a, best_b, best_c, strict=True))


def _linear(powers: Doubles, weights: Doubles, sums: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Return the best a and c within their bounds and the squared error, for every b; float64 [fits, 3, b's] each.

    The optimum is free, or lies on one of c's bounds with the best a there: three candidates. Errors follow from sums.

    Args:
        powers: bˣ, 0 in the padding, float64 [fits, b's, points].
        weights: 1 and y, 0 in the padding, float64 [fits, points, 2].
        sums: Number of points, sum of y and sum of y², float64 [3, fits, 1].
    """
    count, sum_y, sum_yy = sums
    products = powers @ weights
    sum_p, sum_py = products[:, :, 0], products[:, :, 1]
    sum_pp = np.einsum("fbp,fbp->fb", powers, powers)
    energy = np.maximum(sum_pp, TINY)
    a = np.empty((len(powers), 3, powers.shape[1]))
    a[:, 0] = (sum_py - sum_p * sum_y / count) / np.maximum(sum_pp - sum_p * sum_p / count, TINY)
    a[:, 1] = sum_py / energy
    a[:, 2] = (sum_py - MOST_C * sum_p) / energy
    np.minimum(np.maximum(a, 0, out=a), MOST_A, out=a)
    c = np.zeros_like(a)
    c[:, 0] = np.minimum(np.maximum((sum_y - a[:, 0] * sum_p) / count, 0), MOST_C)
    c[:, 2] = MOST_C
    count, sum_y, sum_yy, sum_p, sum_py, sum_pp = (
        total[:, None] for total in (count, sum_y, sum_yy, sum_p, sum_py, sum_pp)
    )
    return a, c, a * (a * sum_pp + 2 * (c * sum_p - sum_py)) + c * (count * c - 2 * sum_y) + sum_yy
