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
ZOOMS = 4
ZOOM = 17
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

    def mean(self, begin: float, points: int = 16) -> float:
        """Return the mean over ``[begin, begin + 1)``, at the middles of `points` equal parts."""
        x = begin + (np.arange(points) + 0.5) / points
        return float(np.mean(self.a * self.b**x + self.c))


def fit(x: Sequence[float], y: Sequence[float]) -> Decay:
    """Return the decay nearest to the points in the sense of least squares.

    For a given b the problem is linear in a and c and solved exactly within their bounds, so only b is searched: over a
    grid, as the error has flat stretches, then over finer ones around the best. A general least-squares routine
    (`scipy.optimize.curve_fit`) takes longer than a controller may, and starts from a guess.

    Args:
        x: Epochs or widths.
        y: Scores, one an x.

    Raises:
        ValueError: There is no point, or not one y an x.
    """
    if not x or len(x) != len(y):
        raise ValueError(f"a fit wants as many scores as points and at least one, but {len(x)} and {len(y)} were given")
    points, scores = np.asarray(x, np.float64), np.asarray(y, np.float64)

    grid = LOG_TAU
    for _ in range(ZOOMS + 1):
        b = np.exp(-np.exp(-grid))
        best = int(_linear(b, points, scores)[2].argmin())
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        nearest, grid = b[best : best + 1], np.linspace(low, high, ZOOM)
    a, c, _ = _linear(nearest, points, scores)
    return Decay(float(a[0]), float(nearest[0]), float(c[0]))


def _linear(b: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the best a and c within their bounds and the squared error, for every b; float64 [len(b)] each.

    The optimum is free, or lies on one of c's bounds with the best a there; errors follow from sums alone.
    """
    powers = np.exp(np.log(b)[:, None] * x)  # [b, x]
    count, sum_y, sum_yy = len(x), float(y.sum()), float(y @ y)
    sum_p, sum_pp, sum_py = powers.sum(axis=1), np.einsum("bx,bx->b", powers, powers), powers @ y
    spread = np.maximum(sum_pp - sum_p**2 / count, TINY)
    energy = np.maximum(sum_pp, TINY)
    a = np.stack([(sum_py - sum_p * sum_y / count) / spread, sum_py / energy, (sum_py - MOST_C * sum_p) / energy])
    a = np.clip(a, 0, MOST_A)  # [3, b]
    c = np.stack([(sum_y - a[0] * sum_p) / count, np.zeros(len(b)), np.full(len(b), MOST_C)])
    c = np.clip(c, 0, MOST_C)
    errors = a * (a * sum_pp + 2 * (c * sum_p - sum_py)) + c * (count * c - 2 * sum_y) + sum_yy
    best, rows = errors.argmin(axis=0), np.arange(len(b))
    return a[best, rows], c[best, rows], errors[best, rows]
