"""A TFLite model while it is made: tensors and operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Activations that an operator may apply to what it writes, by the operator that does it alone.
ACTIVATIONS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
#: Operators that may do so, and their table of options in the schema.
ACTIVATED = {
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "DIV": "DivOptions",
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
}
#: Tables of options of the other operators that have settings.
OPTIONS = {
    **ACTIVATED,
    "ASSIGN_VARIABLE": "AssignVariableOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CALL_ONCE": "CallOnceOptions",
    "CAST": "CastOptions",
    "CONCATENATION": "ConcatenationOptions",
    "GATHER": "GatherOptions",
    "GELU": "GeluOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "MEAN": "ReducerOptions",
    "MIRROR_PAD": "MirrorPadOptions",
    "ONE_HOT": "OneHotOptions",
    "READ_VARIABLE": "ReadVariableOptions",
    "REDUCE_MAX": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "SOFTMAX": "SoftmaxOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUM": "ReducerOptions",
    "VAR_HANDLE": "VarHandleOptions",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """How whole numbers stand for values: value = scale · (number - zero).

    Attributes:
        scales: One of the tensor, or of each of its channels.
        zero: The number that stands for 0.
        axis: Axis of the channels.
    """

    scales: tuple[float, ...]
    zero: int = 0
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a model: a constant if it has data."""

    name: str
    shape: tuple[int, ...]
    data: Array | None = None
    dtype: str = "float32"
    scale: Scale | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a model.

    Attributes:
        kind: Its name in the schema.
        inputs: Numbers of the tensors it reads; -1 for one that is left out.
        output: Number of the tensor it writes; -1 for none.
        options: Its settings, by the schema's names.
        exact: Whether it stays in float32 where the model is quantised.
    """

    kind: str
    inputs: tuple[int, ...]
    output: int
    options: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False


@dataclass(slots=True)
class TfliteModel:
    """Tensors and operators; the input and the output are numbers of tensors."""

    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    input: int = -1
    output: int = -1

    def tensor(self, name: str, shape: Sequence[int], dtype: str = "float32", scale: Scale | None = None) -> int:
        """Add a tensor that is computed and return its number."""
        self.tensors.append(Tensor(name, tuple(map(int, shape)), None, dtype, scale))
        return len(self.tensors) - 1

    def constant(self, data: Array, name: str = "constant", scale: Scale | None = None) -> int:
        """Add a constant and return its number."""
        data = np.ascontiguousarray(data) if data.ndim else data  # that would give a single number an axis
        self.tensors.append(Tensor(name, data.shape, data, str(data.dtype), scale))
        return len(self.tensors) - 1

    def add(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        name: str = "",
        *,
        exact: bool = False,
        dtype: str = "float32",
        **options: Any,
    ) -> int:
        """Add an operator and return the number of the tensor it writes, of a shape and a type."""
        output = self.tensor(name or kind.lower(), shape, dtype)
        self.operators.append(Operator(kind, tuple(inputs), output, options, exact))
        return output

    def act(self, kind: str, inputs: Sequence[int], **options: Any) -> None:
        """Add an operator that writes no tensor."""
        self.operators.append(Operator(kind, tuple(inputs), -1, options))


def activated(model: TfliteModel) -> TfliteModel:
    """Return a model whose activations are part of the operators before them, where nothing else reads these."""
    readers = [number for one in model.operators for number in one.inputs] + [model.output]
    before: dict[int, int] = {}
    operators: list[Operator] = []
    for one in model.operators:
        source = before.get(one.inputs[0]) if one.kind in ACTIVATIONS else None
        if source is None or readers.count(one.inputs[0]) > 1:
            if one.kind in ACTIVATED:
                before[one.output] = len(operators)
            operators.append(one)
            continue
        own = operators[source]
        options = {**own.options, "fusedActivationFunction": ACTIVATIONS[one.kind]}
        operators[source] = Operator(own.kind, own.inputs, one.output, options, own.exact)
    return TfliteModel(model.tensors, operators, model.input, model.output)


def used(model: TfliteModel) -> list[int]:
    """Return the numbers of the tensors that a model's file has, in the file's order."""
    numbers = {number for one in model.operators for number in (*one.inputs, one.output)}
    return sorted({model.input, model.output, *numbers} - {-1})
