"""Values of an ONNX graph as tensors of a TFLite model, whose images have their channels last.

A layout says which of the value's axes each axis of the tensor is: (0, 2, 3, 1) has the channels of an image last. An
ONNX Transpose gives the same tensor another layout; a tensor is transposed where an operator needs another one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner_tflite.graph import Graph
from tuner_tflite.model import TfliteModel

Array = npt.NDArray[Any]
Layout = tuple[int, ...]


class Values:
    """The tensors of a graph's values, by their layout.

    Args:
        graph: The graph.

    Attributes:
        model: The model that tensors are added to.
    """

    def __init__(self, graph: Graph) -> None:
        self.model = TfliteModel()
        self._graph = graph
        self._tensors: dict[str, dict[Layout, int]] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value, as ONNX has it."""
        return self._graph.shapes[name]

    def constant(self, name: str) -> Array | None:
        """Return a value that does not depend on the sample; None of another."""
        return self._graph.constants.get(name)

    def layout(self, name: str) -> Layout:
        """Return the layout that a value is there in; that of ONNX for a constant."""
        return next(iter(self._tensors.get(name, {plain(len(self.shape(name))): 0})))

    def put(self, name: str, tensor: int, layout: Layout | None = None) -> None:
        """Say which tensor a value is, in a layout; in that of ONNX where none is given."""
        self._tensors.setdefault(name, {})[layout or plain(len(self.shape(name)))] = tensor

    def get(self, name: str, layout: Layout | None = None) -> int:
        """Return a value's tensor in a layout; in that of ONNX where none is given."""
        wanted = layout or plain(len(self.shape(name)))
        there = self._tensors.setdefault(name, {})
        if wanted not in there:
            if (data := self.constant(name)) is not None:
                there[wanted] = self.model.constant(floats(data).transpose(wanted), name)
            else:
                has, tensor = next(iter(there.items()))
                axes = [has.index(axis) for axis in wanted]
                there[wanted] = self.transposed(tensor, axes, name)
        return there[wanted]

    def stored(self, name: str) -> int:
        """Return a value's tensor in whatever layout it has."""
        return self.get(name, self.layout(name))

    def transposed(self, tensor: int, axes: Sequence[int], name: str = "transposed") -> int:
        """Return a tensor with its axes in another order."""
        shape = self.model.tensors[tensor].shape
        target = [shape[axis] for axis in axes]
        long = [axis for axis in axes if shape[axis] > 1]
        if long == sorted(long):
            return self.reshaped(tensor, target)
        dtype = self.model.tensors[tensor].dtype
        return self.model.add("TRANSPOSE", (tensor, self.whole_numbers(axes)), target, name, dtype=dtype)

    def reshaped(self, tensor: int, shape: Sequence[int]) -> int:
        """Return a tensor with the same numbers in another shape."""
        if self.model.tensors[tensor].shape == tuple(shape):
            return tensor
        sizes, dtype = list(map(int, shape)), self.model.tensors[tensor].dtype
        return self.model.add("RESHAPE", (tensor, self.whole_numbers(sizes)), sizes, dtype=dtype, newShape=sizes)

    def whole_numbers(self, numbers: Sequence[int]) -> int:
        """Return a constant tensor of whole numbers, int32."""
        return self.model.constant(np.array(numbers, np.int32), "numbers")

    def aligned(self, names: Sequence[str], output: str) -> tuple[list[int], Layout]:
        """Return tensors that TFLite broadcasts as ONNX does, and the layout of what is computed of them."""
        rank = len(self.shape(output))
        layouts = [self.layout(name) for name in names if self.constant(name) is None and len(self.shape(name)) == rank]
        layout = next((one for one in layouts if one != plain(rank)), plain(rank))
        return [self._of_rank(name, layout) for name in names], layout

    def _of_rank(self, name: str, layout: Layout) -> int:
        shape, data = self.shape(name), self.constant(name)
        if len(shape) == len(layout) and data is None:
            return self.get(name, layout)
        padded = (1,) * (len(layout) - len(shape)) + tuple(shape)
        if data is not None:
            return self.model.constant(floats(data).reshape(padded).transpose(layout), name)
        return self.transposed(self.reshaped(self.get(name), padded), layout)


def plain(rank: int) -> Layout:
    """Return the layout of ONNX."""
    return tuple(range(rank))


def channels_last(rank: int) -> Layout:
    """Return the layout of images, and of signals, in TFLite."""
    return (0, *range(2, rank), 1)


def floats(data: Array) -> Array:
    """Return numbers as TFLite computes with them: float32, unless they are truth values."""
    return data if data.dtype == np.bool_ else data.astype(np.float32)
