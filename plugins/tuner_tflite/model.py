"""A TFLite model while it is made: tensors, operators, and the file."""

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
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CONCATENATION": "ConcatenationOptions",
    "GATHER": "GatherOptions",
    "GELU": "GeluOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "MEAN": "ReducerOptions",
    "MIRROR_PAD": "MirrorPadOptions",
    "REDUCE_MAX": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "SOFTMAX": "SoftmaxOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUM": "ReducerOptions",
}
#: Version of an operator that its kernel for int8 came with, where it is not 1; old programs look it up.
VERSIONS = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), 3),
    "FULLY_CONNECTED": 4,
    **dict.fromkeys(("ADD", "SUB", "MUL", "MEAN", "PAD", "PADV2", "SOFTMAX", "LOGISTIC", "TANH", "TRANSPOSE"), 2),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "CONCATENATION", "STRIDED_SLICE", "RESIZE_BILINEAR"), 2),
}
#: Version of DEQUANTIZE that reads a scale for each channel.
DEQUANTIZE_CHANNELS = 5
#: Bytes that the numbers of a tensor are aligned to in a file.
ALIGNMENT = 16


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
        output: Number of the tensor it writes.
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
        **options: Any,
    ) -> int:
        """Add an operator and return the number of the tensor it writes, float32 of a shape."""
        output = self.tensor(name or kind.lower(), shape)
        self.operators.append(Operator(kind, tuple(inputs), output, options, exact))
        return output


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
    numbers = {number for one in model.operators for number in (*one.inputs, one.output) if number >= 0}
    return sorted({model.input, model.output, *numbers})


def to_bytes(model: TfliteModel, description: str) -> bytes:
    """Return a model as a file's content; tensors that no operator uses are left out."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    numbers = used(model)
    places = {number: place for place, number in enumerate(numbers)} | {-1: -1}

    class AlignedBuffer(schema.BufferT):  # type: ignore[misc]
        """A tensor's numbers where kernels may read 16 bytes at once: the library would align them to 4."""

        def __init__(self, data: Array) -> None:
            super().__init__()
            self._bytes = data.tobytes()

        def Pack(self, builder: Any) -> Any:  # noqa: N802 - the library's name
            builder.StartVector(1, len(self._bytes), ALIGNMENT)
            builder.head -= len(self._bytes)
            builder.Bytes[builder.head : builder.head + len(self._bytes)] = self._bytes
            data = builder.EndVector()
            schema.BufferStart(builder)
            schema.BufferAddData(builder, data)
            return schema.BufferEnd(builder)

    buffers = [schema.BufferT()]
    tensors = []
    for number in numbers:
        one = model.tensors[number]
        tensor = schema.TensorT()
        tensor.name, tensor.shape = f"{one.name}_{number}".encode(), list(one.shape)
        tensor.type, tensor.buffer = getattr(schema.TensorType, one.dtype.upper()), 0
        if one.data is not None:
            tensor.buffer = len(buffers)
            buffers.append(AlignedBuffer(one.data))
        if one.scale is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = list(one.scale.scales)
            tensor.quantization.zeroPoint = [one.scale.zero] * len(one.scale.scales)
            tensor.quantization.quantizedDimension = one.scale.axis
        tensors.append(tensor)
    kinds = {_kind(model, one): None for one in model.operators}
    codes = []
    for kind, version in kinds:
        code = schema.OperatorCodeT()
        code.builtinCode, code.version = getattr(schema.BuiltinOperator, kind), version
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        codes.append(code)
    rows = {kind: row for row, kind in enumerate(kinds)}
    graph = schema.SubGraphT()
    graph.name, graph.tensors = b"main", tensors
    graph.inputs, graph.outputs = [places[model.input]], [places[model.output]]
    graph.operators = []
    for own in model.operators:
        operator = schema.OperatorT()
        operator.opcodeIndex = rows[_kind(model, own)]
        operator.inputs, operator.outputs = [places[number] for number in own.inputs], [places[own.output]]
        if (table := OPTIONS.get(own.kind)) is not None:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            operator.builtinOptions = getattr(schema, f"{table}T")()
            for name, value in own.options.items():
                setattr(operator.builtinOptions, name, value)
        graph.operators.append(operator)
    content = schema.ModelT()
    content.version, content.description = 3, description.encode()
    content.operatorCodes, content.subgraphs, content.buffers = codes, [graph], buffers
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(content.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _kind(model: TfliteModel, one: Operator) -> tuple[str, int]:
    """Return an operator's name and version."""
    scale = model.tensors[one.inputs[0]].scale
    if one.kind == "DEQUANTIZE" and scale is not None:
        return one.kind, DEQUANTIZE_CHANNELS if len(scale.scales) > 1 else 2
    is_int8 = model.tensors[one.output].dtype != "float32"
    return one.kind, VERSIONS.get(one.kind, 1) if is_int8 else 1
