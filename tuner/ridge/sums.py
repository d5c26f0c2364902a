"""Features as integer codes, and sums of them that can be taken back exactly."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tuner.arrays import Array, Doubles
from tuner.errors import TrainingError
from tuner.targets.strata import PARTS

#: Most features of a sample: the sums of more, squared, would take more memory than the model.
MOST_FEATURES = 2048
#: Largest code. The product of two has 28 bits: a float64 adds 2²⁵ of them without rounding.
LARGEST_CODE = 2**14
#: Most samples of exact sums.
MOST_SAMPLES = 2**25
#: Rows that products are taken of at once: copies of all would take more memory than their sums.
ROWS = 256


def pooled(maps: Array, grid: int = 1) -> Array:
    """Return the means of feature maps [n, channels, height, width] over a grid of cells, [n, channels · grid²].

    A cell's borders are those of PyTorch's adaptive pooling. Vectors [n, features] stay as they are.
    """
    if maps.ndim == 2:  # noqa: PLR2004 - [n, features]
        return maps
    for axis in (2, 3):
        size = maps.shape[axis]
        cells = min(grid, size)
        parts = [range(cell * size // cells, -(-(cell + 1) * size // cells)) for cell in range(cells)]
        maps = np.stack([maps.take(part, axis).mean(axis) for part in parts], axis)
    return maps.reshape(len(maps), -1)


def step_of(features: Array) -> float:
    """Return a power of two by which features like these become codes of 14 bits and a sign."""
    largest = float(np.abs(features).max(initial=0.0))
    return 2.0 ** math.ceil(math.log2(largest / LARGEST_CODE)) if largest > 0 else 1.0


def coded(features: Array, step: float) -> Doubles:
    """Return features as codes: whole numbers in float64, [n, features]; one code is worth `step`.

    What is larger than the largest code counts as that.

    Raises:
        TrainingError: Some are not finite, or there are too many of a sample.
    """
    if features.shape[1] > MOST_FEATURES:
        raise TrainingError(
            f"a head in closed form takes at most {MOST_FEATURES} features, got {features.shape[1]}: pool them"
        )
    if not np.isfinite(features).all():
        raise TrainingError("a head in closed form takes finite features, but some are not: check the frozen blocks")
    return np.clip(np.rint(features.astype(np.float64) / step), -LARGEST_CODE, LARGEST_CODE)


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """What a ridge head needs of its samples: XᵀX and XᵀT, where every row of X ends with a one.

    With codes (`coded`) and whole targets, all numbers are whole and below 2⁵³: sums are exact in any order, and
    `removed` undoes `added`. With weights (`row_weights`) they are whole multiples of 1/64, and as exact.

    Attributes:
        gram: XᵀX, float64 [features + 1, features + 1]; its last entry is the number of samples.
        cross: XᵀT, float64 [features + 1, outputs]; its last row is the sum of the targets.
        step: What one code is worth.
    """

    gram: Doubles
    cross: Doubles
    step: float

    @classmethod
    def empty(cls, features: int, outputs: int, step: float = 1.0) -> "Sums":
        """Return the sums of no samples."""
        return cls(np.zeros((features + 1, features + 1)), np.zeros((features + 1, outputs)), step)

    @property
    def count(self) -> float:
        """Number of samples, or sum of their weights."""
        return float(self.gram[-1, -1])

    def added(self, codes: Doubles, targets: Array, weights: Doubles | None = None) -> "Sums":
        """Return the sums with further samples; targets of ones and zeros, `one_hot`, keep them exact.

        Args:
            codes: float64 [n, features]; see `coded`.
            targets: float [n, outputs].
            weights: What each sample counts, float64 [n]; see `row_weights`. One each where it is None.

        Raises:
            TrainingError: So many samples would not be exact.
        """
        gram, cross = _products(codes, targets, weights)
        gram += self.gram
        result = replace(self, gram=gram, cross=self.cross + cross)
        most = MOST_SAMPLES if weights is None else MOST_SAMPLES // PARTS
        if result.count > most:
            raise TrainingError(f"sums are exact of at most {most:,} samples, got {result.count:,.0f}")
        return result

    def removed(self, codes: Doubles, targets: Array, weights: Doubles | None = None) -> "Sums":
        """Return the sums as if some of their samples had never been added: down-dating, exact for codes."""
        gram, cross = _products(codes, targets, weights)
        return replace(self, gram=self.gram - gram, cross=self.cross - cross)

    def tensors(self) -> dict[str, Array]:
        """Return all that `of_tensors` makes the sums from."""
        return {"gram": self.gram, "cross": self.cross, "step": np.array(self.step)}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Array]) -> "Sums":
        """Return sums from their tensors."""
        return cls(tensors["gram"].astype(float), tensors["cross"].astype(float), float(tensors["step"]))

    def weighted(self, weight: float) -> "Sums":
        """Return the sums of samples that count `weight` times."""
        return replace(self, gram=self.gram * weight, cross=self.cross * weight)

    def rescaled(self, step: float) -> "Sums":
        """Return the same sums of codes of another step; whole numbers no longer, but exact for powers of two."""
        factor = np.full(len(self.gram), self.step / step)
        factor[-1] = 1.0  # of the row of ones
        return Sums(self.gram * np.outer(factor, factor), self.cross * factor[:, None], step)

    def __add__(self, other: "Sums") -> "Sums":
        """Return the sums of both."""
        if self.step != other.step:
            raise TrainingError(f"sums can be added of codes of one step, got {self.step:g} and {other.step:g}")
        return replace(self, gram=self.gram + other.gram, cross=self.cross + other.cross)


def _products(codes: Doubles, targets: Array, weights: Doubles | None) -> tuple[Doubles, Doubles]:
    """Return XᵀX and XᵀT."""
    size, targets = codes.shape[1] + 1, np.asarray(targets, float)
    gram, cross = np.zeros((size, size)), np.zeros((size, targets.shape[1]))
    for here in blocks(len(codes)):
        rows = np.column_stack([codes[here], np.ones(len(codes[here]))])
        weighted = rows if weights is None or (weights == 1).all() else rows * weights[here, None]
        for columns in blocks(size):
            gram[:, columns] += weighted.T @ rows[:, columns]
        cross += weighted.T @ targets[here]
    return gram, cross


def blocks(count: int) -> list[slice]:
    """Return so many rows in parts of `ROWS`."""
    return [slice(at, at + ROWS) for at in range(0, count, ROWS)]
