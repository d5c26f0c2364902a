"""TFLite models as the content of a file, by LiteRT's schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner_tflite.model import OPTIONS, Array, Operator, Tensor, TfliteModel, used

#: Version of an operator that its kernel for int8 came with, where it is not 1; old programs look it up.
VERSIONS = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), 3),
    "FULLY_CONNECTED": 4,
    **dict.fromkeys(("ADD", "SUB", "MUL", "MEAN", "PAD", "PADV2", "SOFTMAX", "LOGISTIC", "TANH", "TRANSPOSE"), 2),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "CONCATENATION", "STRIDED_SLICE", "RESIZE_BILINEAR"), 2),
}
#: Version that LiteRT has of an operator in float32, where it is not 1.
FLOAT_VERSIONS = {"BROADCAST_TO": 2}
#: Version of DEQUANTIZE that reads a scale for each channel.
DEQUANTIZE_CHANNELS = 5
#: Bytes that a file has beside its numbers: more make it grow.
OVERHEAD = 1 << 18
#: Bytes that the numbers of a tensor are aligned to in a file.
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """A model that programs call by a name.

    Attributes:
        name: The name; empty for a model that is not called by one.
        model: The model.
        inputs: Numbers of its input tensors, by the names that programs give them.
        outputs: Likewise.
    """

    name: str
    model: TfliteModel
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]

    @property
    def tensors(self) -> list[int]:
        """Numbers of the tensors that the file has, in its order."""
        return sorted({*used(self.model), *self.inputs.values(), *self.outputs.values()})


def to_bytes(model: TfliteModel, description: str) -> bytes:
    """Return a file with one model; tensors that no operator uses are left out."""
    return file_of([Signature("", model, {"input": model.input}, {"output": model.output})], description)


def file_of(signatures: Sequence[Signature], description: str) -> bytes:
    """Return a file with several models, in their order; variables are shared by all."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    class AlignedBuffer(schema.BufferT):  # type: ignore[misc]
        """A tensor's numbers where kernels may read 16 bytes at once: the library would align them to 4."""

        def __init__(self, data: Array) -> None:
            super().__init__()
            self._bytes: Any = data.reshape(-1).view(np.uint8).data  # no copy

        def Pack(self, builder: Any) -> Any:  # noqa: N802 - the library's name
            builder.StartVector(1, len(self._bytes), ALIGNMENT)
            builder.head -= len(self._bytes)
            builder.Bytes[builder.head : builder.head + len(self._bytes)] = self._bytes
            data = builder.EndVector()
            schema.BufferStart(builder)
            schema.BufferAddData(builder, data)
            return schema.BufferEnd(builder)

    buffers = [schema.BufferT()]
    content = schema.ModelT()
    content.version, content.description, content.buffers = 3, description.encode(), buffers
    content.subgraphs, content.operatorCodes, content.signatureDefs = [], [], []
    kinds = {_kind(own.model, one): None for own in signatures for one in own.model.operators}
    rows = {kind: row for row, kind in enumerate(kinds)}
    for kind, version in kinds:
        code = schema.OperatorCodeT()
        code.builtinCode, code.version = getattr(schema.BuiltinOperator, kind), version
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        content.operatorCodes.append(code)
    for own in signatures:
        places = {number: place for place, number in enumerate(own.tensors)} | {-1: -1}
        graph = schema.SubGraphT()
        graph.name, graph.tensors, graph.operators = (own.name or "main").encode(), [], []
        graph.inputs, graph.outputs = ([places[one] for one in ends.values()] for ends in (own.inputs, own.outputs))
        for number in own.tensors:
            one = own.model.tensors[number]
            tensor, data = _tensor(schema, one, f"{one.name}_{number}"), one.data
            if data is not None:
                tensor.buffer = len(buffers)
                buffers.append(AlignedBuffer(data))
            graph.tensors.append(tensor)
        for step in own.model.operators:
            graph.operators.append(_operator(schema, step, rows[_kind(own.model, step)], places))
        content.subgraphs.append(graph)
        if own.name:
            content.signatureDefs.append(_definition(schema, own, places, len(content.subgraphs) - 1))
    held = (one.data for own in signatures for one in own.model.tensors if one.data is not None)
    builder = flatbuffers.Builder(OVERHEAD + sum(data.nbytes for data in held))  # it would double, and copy
    builder.Finish(content.Pack(builder), b"TFL3")
    return bytes(memoryview(builder.Bytes)[builder.Head() :])


def _tensor(schema: Any, one: Tensor, name: str) -> Any:
    """Return a tensor without its numbers."""
    tensor = schema.TensorT()
    tensor.name, tensor.shape = name.encode(), list(one.shape)
    tensor.type, tensor.buffer = getattr(schema.TensorType, one.dtype.upper()), 0
    if one.scale is not None:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale = np.array(one.scale.scales, np.float32)  # written at once, as a list is not
        tensor.quantization.zeroPoint = np.full(len(one.scale.scales), one.scale.zero, np.int64)
        tensor.quantization.quantizedDimension = one.scale.axis
    return tensor


def _operator(schema: Any, one: Operator, row: int, places: Mapping[int, int]) -> Any:
    """Return an operator, whose kind has a row in the file's table."""
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs = row, [places[number] for number in one.inputs]
    operator.outputs = [places[one.output]] if one.output >= 0 else []
    if (table := OPTIONS.get(one.kind)) is not None:
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, table)
        operator.builtinOptions = getattr(schema, f"{table}T")()
        for name, value in one.options.items():
            setattr(operator.builtinOptions, name, value)
    return operator


def _definition(schema: Any, own: Signature, places: Mapping[int, int], number: int) -> Any:
    """Return how programs call a model of a file."""
    definition = schema.SignatureDefT()
    definition.signatureKey, definition.subgraphIndex = own.name.encode(), number
    definition.inputs, definition.outputs = [], []
    for maps, ends in ((definition.inputs, own.inputs), (definition.outputs, own.outputs)):
        for name, tensor in ends.items():
            own_map = schema.TensorMapT()
            own_map.name, own_map.tensorIndex = name.encode(), places[tensor]
            maps.append(own_map)
    return definition


def _kind(model: TfliteModel, one: Operator) -> tuple[str, int]:
    """Return an operator's name and version."""
    if one.kind == "DEQUANTIZE" and (scale := model.tensors[one.inputs[0]].scale) is not None:
        return one.kind, DEQUANTIZE_CHANNELS if len(scale.scales) > 1 else 2
    is_int8 = one.output >= 0 and model.tensors[one.output].dtype in {"int8", "uint8"}
    version = FLOAT_VERSIONS.get(one.kind, 1)
    return one.kind, VERSIONS.get(one.kind, version) if is_int8 else version
