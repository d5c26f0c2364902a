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
#: ln τ of b = exp(−1/τ): from a decay within a tenth of a step to one that is flat over a thousand.
LOG_TAU = np.linspace(math.log(0.1), math.log(1e5), 60)
#: Refinements of the grid around its best point, and points of each.
ZOOMS = 4
ZOOM = 17
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
    """Return the best a and c within their bounds and the squared error, for every b; float64 [len(b)] each."""
    powers = b[:, None] ** x[None, :]  # [b, x]
    count, mean_y = len(x), y.mean()
    mean_p = powers.mean(axis=1)
    centred = powers - mean_p[:, None]
    spread = (centred**2).sum(axis=1)
    free_a = np.where(spread > 0, (centred @ (y - mean_y)) / np.where(spread > 0, spread, 1), 0)
    energy = (powers**2).sum(axis=1)
    tried_a = [np.clip(free_a, 0, MOST_A)]
    tried_c = [mean_y - tried_a[0] * mean_p]
    for bound in (0.0, MOST_C):
        cross = powers @ (y - bound)
        tried_a.append(np.clip(np.where(energy > 0, cross / np.where(energy > 0, energy, 1), 0), 0, MOST_A))
        tried_c.append(np.full(len(b), bound))
    a, c = np.stack(tried_a), np.clip(np.stack(tried_c), 0, MOST_C)
    errors = ((a[:, :, None] * powers[None] + c[:, :, None] - y) ** 2).sum(axis=2) / count
    best = errors.argmin(axis=0)
    rows = np.arange(len(b))
    return a[best, rows], c[best, rows], errors[best, rows]
