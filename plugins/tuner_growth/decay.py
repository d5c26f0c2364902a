"""Exponential decays ``D(x) = a·bˣ + c``, fitted to growth scores by least squares.

Source: MDLdroidLite (SenSys 2020), section "growth model"; bounds a ∈ [0, 100], b ∈ (0, 1), c ∈ [0, 10].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_A = 100.0
MOST_C = 10.0
#: ln τ of b = exp(−1/τ): from a decay within a tenth of a step to one that is flat over thousands.
LOG_TAU = np.linspace(math.log(0.1), math.log(1e5), 40)
#: Refinements of the grid around its best point, and points of each.
ZOOMS = 2
ZOOM = 65
TINY = 1e-12
Floats = npt.NDArray[np.float64]


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
        ValueError: There is no point, or not one y an x.
    """
    return fits([(x, y)])[0]


def fits(points: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[Decay, ...]:
    """Return the decays nearest to several sets of points in the sense of least squares, all found at once.

    For a given b the problem is linear in a and c and solved exactly within their bounds, so only b is searched: over a
    grid, as the error has flat stretches, then over finer ones around the best. A general least-squares routine
    (`scipy.optimize.curve_fit`) takes longer than a controller may, and starts from a guess.

    Args:
        points: Epochs or widths, and as many scores, of each decay.

    Raises:
        ValueError: A set has no point, or not one y an x.
    """
    for places, scores in points:
        if not places or len(places) != len(scores):
            raise ValueError(
                f"a fit wants as many scores as points and at least one, but {len(places)} and {len(scores)} were given"
            )
    most = max(len(places) for places, _ in points)
    x, y, known = np.zeros((3, len(points), most))  # [fits, most]; what is not known weighs nothing
    for row, (places, scores) in enumerate(points):
        x[row, : len(places)], y[row, : len(places)], known[row, : len(places)] = places, scores, 1
    rows = np.arange(len(points))
    grid = np.broadcast_to(LOG_TAU, (len(points), len(LOG_TAU)))
    for zoom in range(ZOOMS + 1):
        b = np.exp(-np.exp(-grid))
        a, c, errors = _linear(b, x, y, known)
        best = errors.argmin(axis=1)
        if zoom < ZOOMS:
            low, high = grid[rows, np.maximum(best - 1, 0)], grid[rows, np.minimum(best + 1, grid.shape[1] - 1)]
            grid = np.linspace(low, high, ZOOM, axis=1)
    found = (a[rows, best], b[rows, best], c[rows, best])
    return tuple(Decay(*map(float, one)) for one in zip(*found, strict=True))


def _linear(b: Floats, x: Floats, y: Floats, known: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the best a and c within their bounds and the squared error, for every b; float64 [fits, b's] each.

    The optimum is free, or lies on one of c's bounds with the best a there; errors follow from sums alone.

    Args:
        b: To try, float64 [fits, b's].
        x: Float64 [fits, points].
        y: Likewise; 0 where it is not known.
        known: 1 where a point is, else 0.
    """
    powers = np.exp(np.log(b)[:, :, None] * x[:, None, :]) * known[:, None, :]  # [fits, b's, points]
    count, sum_y, sum_yy = known.sum(axis=1)[:, None], y.sum(axis=1)[:, None], (y * y).sum(axis=1)[:, None]
    sum_p, sum_pp = powers.sum(axis=2), (powers * powers).sum(axis=2)
    sum_py = (powers @ y[:, :, None])[:, :, 0]
    spread = np.maximum(sum_pp - sum_p**2 / count, TINY)
    energy = np.maximum(sum_pp, TINY)
    a = np.stack([(sum_py - sum_p * sum_y / count) / spread, sum_py / energy, (sum_py - MOST_C * sum_p) / energy])
    a = np.clip(a, 0, MOST_A)  # [3, fits, b's]
    c = np.stack([(sum_y - a[0] * sum_p) / count, np.zeros_like(b), np.full_like(b, MOST_C)])
    c = np.clip(c, 0, MOST_C)
    errors = a * (a * sum_pp + 2 * (c * sum_p - sum_py)) + c * (count * c - 2 * sum_y) + sum_yy
    best = errors.argmin(axis=0)[None]
    return (
        np.take_along_axis(a, best, 0)[0],
        np.take_along_axis(c, best, 0)[0],
        np.take_along_axis(errors, best, 0)[0],
    )
