"""What an ONNX file of a bundle may hold, checked by its bytes before ONNX Runtime reads any of it.

Refused are values outside the file, operators that run other graphs or are not ONNX's own, and sizes that the file
declares without holding them: ONNX Runtime allocates what a file declares, while it loads it. Field numbers are those
of onnx.proto3 (ONNX 1.23).
"""

import math
import mmap
import struct
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import BundleError
from tuner.ort.protobuf import ByteRange, fields, integers, ranges
from tuner.reading import open_regular

#: Largest number of elements that a file may declare, or compute from its own numbers: 1 GiB of float32.
MOST_ELEMENTS = 2**28
_MOST_NUMBERS = 64  # a shape has fewer
_RAW, _PACKED_INTEGERS, _FLOATS = 9, frozenset({5, 7, 11}), 4
_RAW_FORMATS = {1: "f", 6: "i", 7: "q", 11: "d", 12: "I", 13: "Q"}

Numbers = tuple[int, ...] | tuple[float, ...] | None
#: Most fields of all messages in a file: a training step of a large model has a tenth.
MOST_FIELDS = 1_000_000
#: Operators that compute tensors from tensors. Without: other graphs, sequences, text, random numbers.
OPERATORS = frozenset(
    """
    Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization
    BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu CenterCropPad Clip
    Col2Im Compress Concat Constant ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumProd CumSum DFT
    DeformConv DepthToSpace DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand
    EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool
    Greater GreaterOrEqual GridSample GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish Hardmax
    Identity InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
    LpNormalization LpPool MatMul MatMulInteger Max MaxPool MaxUnpool Mean MeanVarianceNormalization MelWeightMatrix
    Min Mish Mod Mul Neg NegativeLogLikelihoodLoss NonZero Not OneHot Or PRelu Pad Pow QLinearConv QLinearMatMul
    QuantizeLinear RMSNormalization RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign
    RotaryEmbedding Round STFT ScatterElements ScatterND Selu SequenceAt Shape Shrink Sigmoid Sign Sin Sinh Size
    Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze Sub Sum
    SwiGLU Swish Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
    """.split()  # noqa: SIM905 - a list of quoted names is four times as long
)
#: Bytes of an element by the number of its type; text and types of less than a byte are not among them.
ELEMENT_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}
#: Attributes of convolutions and pooling that make their output larger, and the largest number in one.
_SPREADING = frozenset({"pads", "kernel_shape", "strides", "dilations", "output_shape", "output_padding"})
_MOST_SPREAD = 2**12
_MOST_REALS = 64  # of a constant that may be a shape's factors
_VARINT_BYTES = 10

# Known fields of each message, by number.
_MODEL = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 26})
_GRAPH = frozenset({1, 2, 5, 10, 11, 12, 13, 14, 16})
_NODE = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
_ATTRIBUTE = frozenset({1, 2, 3, 4, 5, 7, 8, 9, 13, 20})
_TENSOR = frozenset({1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 14, 16})
_TENSOR_DATA = (4, 5, 7, 9, 10, 11)
#: Fields that a file may have only to be refused, with the reason.
_REFUSED: Mapping[str, Mapping[int, str]] = {
    "model": {20: "training graphs", 25: "functions"},
    "graph": {15: "sparse values"},
    "attribute": {6: "a graph in a graph", 11: "a graph in a graph", 21: "functions", 22: "sparse values"},
    "tensor": {3: "values in pieces", 6: "text", 13: "values outside the file"},
}
#: Inputs that decide the size of an operator's output, and the largest product of their numbers: sizes themselves, or
#: factors of what the operator is given.
_SIZING: Mapping[str, Mapping[int, int]] = {
    "AffineGrid": {1: MOST_ELEMENTS},
    "BlackmanWindow": {0: 2**20},
    "CenterCropPad": {1: MOST_ELEMENTS},
    "Col2Im": {1: MOST_ELEMENTS},
    "ConstantOfShape": {0: MOST_ELEMENTS},
    "Expand": {1: MOST_ELEMENTS},
    "HammingWindow": {0: 2**20},
    "HannWindow": {0: 2**20},
    "MaxUnpool": {2: MOST_ELEMENTS},
    "MelWeightMatrix": {0: 2**14, 1: 2**20},
    "OneHot": {1: 2**20},
    "Pad": {1: 2**14},
    "Range": {0: MOST_ELEMENTS, 1: MOST_ELEMENTS, 2: MOST_ELEMENTS},
    "Resize": {2: 2**14, 3: MOST_ELEMENTS},
    "Tile": {1: 2**14},
    "Upsample": {1: 2**14},
}
#: Operators on shapes that pass numbers on: of the first input, or of all.
_PASSES_FIRST = frozenset(
    {"Cast", "CastLike", "Ceil", "Div", "Expand", "Flatten", "Floor", "Gather", "Identity", "Mod", "Neg", "Reshape"}
) | {"Slice", "Squeeze", "Transpose", "Unsqueeze"}
_MULTIPLIES = frozenset({"Concat", "Max", "Min", "Mul", "Where"})
_ADDS = frozenset({"Add", "Sub", "Sum"})
_FROM_SIZES = frozenset({"Equal", "Greater", "Less", "Not", "Shape", "Size"})


def check_model(path: Path) -> None:
    """Check that a file is an ONNX model of known operators that holds every value it declares.

    Raises:
        BundleError: It is not, with the first reason.
        OSError: It cannot be read.
    """
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            check_content(content)
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from None
    except ValueError:  # an empty file, which cannot be mapped
        raise BundleError(f"{path}: the model file is not ONNX: export again") from None


def check_content(content: bytes | mmap.mmap) -> None:
    """Check the content of a file; see `check_model`."""
    try:
        _Check(content).model()
    except UnicodeDecodeError:
        raise BundleError("the model file is not ONNX: export again") from None


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph; the name of an optional input that is left out is empty."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(slots=True)
class _Check:
    """One file under check."""

    content: Any
    left: int = MOST_FIELDS
    constants: dict[str, tuple[int, ...] | tuple[float, ...] | None] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def model(self) -> None:
        """Check the whole file."""
        parts = list(self._fields(ByteRange(0, len(self.content)), "model", _MODEL))
        graphs = [value for number, value in parts if number == 7 and isinstance(value, ByteRange)]  # noqa: PLR2004
        if len(graphs) != 1:
            raise BundleError(f"it holds {len(graphs)} graphs, must be one: export again")
        for number, value in self._fields(graphs[0], "graph", _GRAPH):
            if isinstance(value, int) or number in {2, 10, 14, 16}:
                continue
            if number == 1:
                self._node(value)
            elif number == 5:  # noqa: PLR2004 - an initialiser
                self._tensor(value)
            else:
                self._value(value)
        require_small_shapes(self.nodes, self.constants)

    def _fields(self, message: ByteRange, name: str, known: frozenset[int]) -> Iterator[tuple[int, int | ByteRange]]:
        refused = _REFUSED.get(name, {})
        for number, value in fields(self.content, message):
            self.left -= 1
            if self.left < 0:
                raise BundleError(f"the graph has more than {MOST_FIELDS:,} parts: no bundle has")
            if number not in known:
                reason = refused.get(number, f"a part that this version does not know ({name}, field {number})")
                raise BundleError(f"it holds {reason}, which no bundle does: export again")
            yield number, value

    def _parts(self, message: ByteRange, name: str, known: frozenset[int]) -> Mapping[int, list[Any]]:
        """Return the values of a message by the numbers of their fields."""
        parts = defaultdict[int, list[Any]](list)
        for number, value in self._fields(message, name, known):
            parts[number].append(value)
        return parts

    def _text(self, values: list[Any]) -> str:
        """Return the last of a field's texts; empty without any."""
        return self._texts(values)[-1] if values else ""

    def _texts(self, values: list[Any]) -> tuple[str, ...]:
        if any(isinstance(value, int) for value in values):
            raise BundleError("the model file is not ONNX: export again")
        texts = tuple(bytes(self.content[value.begin : value.end]).decode() for value in values)
        if (hidden := next((text for text in texts if not text.isprintable()), None)) is not None:
            raise BundleError(f"it holds the name {hidden!r}, which is not printable: export again")
        return texts

    def _node(self, message: ByteRange) -> None:
        parts = self._parts(message, "node", _NODE)
        inputs, outputs = self._texts(parts[1]), self._texts(parts[2])
        operator, domain = self._text(parts[4]), self._text(parts[7])
        self._texts(parts[3])  # its own name
        for attribute in parts[5]:
            if isinstance(attribute, ByteRange):
                self._attribute(attribute, outputs[0] if outputs else "")
        if domain not in {"", "ai.onnx"} or operator not in OPERATORS:
            name = f"{domain}.{operator}" if domain else operator
            raise BundleError(f"it uses the operator {name!r}, which bundles do without: use a model without it")
        self.nodes.append(Node(operator, inputs, outputs))

    def _attribute(self, message: ByteRange, output: str) -> None:
        """Check an attribute of a node, and note a constant's small values by the name of its output."""
        parts, reals = self._parts(message, "attribute", _ATTRIBUTE), list[float]()
        name = self._text(parts[1])
        numbers = [number for value in (*parts[3], *parts[8]) for number in self._integers(value)]
        for value in (*parts[2], *parts[7]):
            if isinstance(value, ByteRange) and value.size % 4 == 0:
                reals += array("f", bytes(self.content[value.begin : value.end][: 4 * _MOST_REALS]))
        for value in parts[5]:
            if isinstance(value, ByteRange):
                self._tensor(value, output)
        if name in _SPREADING and any(abs(number) > _MOST_SPREAD for number in numbers):
            raise BundleError(f"the attribute {name} is {numbers}, beyond {_MOST_SPREAD}: export again")
        if name in {"value_int", "value_ints"} and output:
            self.constants[output] = tuple(numbers)
        if name in {"value_float", "value_floats"} and output and len(reals) < _MOST_REALS:
            self.constants[output] = tuple(reals)

    def _tensor(self, message: ByteRange, output: str = "") -> None:
        """Check that a tensor holds the values that it declares, and note small ones."""
        parts = self._parts(message, "tensor", _TENSOR)
        if any(parts[14]):
            raise BundleError("it holds values outside the file, which no bundle does: export again")
        own, kind = self._text(parts[8]), (parts[2] or [0])[-1]
        name = output or own
        dims = [number for value in parts[1] for number in self._integers(value)]
        data = {number: parts[number][0] for number in _TENSOR_DATA if parts[number]}
        if any(isinstance(value, int) for value in data.values()):
            raise BundleError(f"the values of {name!r} are not packed: export again")
        repeated = any(len(values) > 1 for number, values in parts.items() if number not in {1, 16})  # sizes, remarks
        if kind not in ELEMENT_BYTES or len(data) > 1 or repeated:
            raise BundleError(f"the values of {name!r} are of no type that a bundle has: export again")
        elements = _elements(dims, name)
        held = sum(place.size for place in data.values())
        size = ELEMENT_BYTES[kind] if {4, 9, 10} & set(data) or not data else None  # of integers of seven bits a byte
        if elements * size != held if size is not None else not elements <= held <= _VARINT_BYTES * elements:
            raise BundleError(f"{name!r} has shape {dims}, but {held} bytes of values: export again")
        self.constants[name] = constant_numbers(self.content, kind, elements, data)

    def _value(self, message: ByteRange) -> None:
        """Check the name and the declared shape of a value: a tensor's, of a bounded size."""
        self._texts(list(ranges(self.content, message, 1)))
        for declared in ranges(self.content, message, 2):
            for kind, tensor in fields(self.content, declared):
                if kind == 6 or (kind == 4 and not isinstance(tensor, int)):  # noqa: PLR2004 - a remark; what a split makes
                    continue
                if kind != 1 or isinstance(tensor, int):
                    raise BundleError("it has values that are not tensors, which no bundle has: export again")
                _elements(self._dims(tensor), "a value of the graph")

    def _dims(self, tensor: ByteRange) -> list[int]:
        """Return the sizes of a tensor that its type declares as numbers."""
        sizes = list[int]()
        for shape in ranges(self.content, tensor, 2):
            for _, dim in self._fields(shape, "shape", frozenset({1})):
                if isinstance(dim, ByteRange):
                    own = [value for at, value in fields(self.content, dim) if at == 1 and isinstance(value, int)]
                    sizes += [size for value in own[-1:] for size in integers(self.content, value)]
        return sizes

    def _integers(self, value: int | ByteRange) -> list[int]:
        """Return one integer, or the packed ones of a field."""
        self.left -= 0 if isinstance(value, int) else value.size
        if self.left < 0:
            raise BundleError(f"the graph has more than {MOST_FIELDS:,} parts: no bundle has")
        return integers(self.content, value)


def _elements(dims: list[int], name: str) -> int:
    """Return the number of elements of a shape."""
    elements = math.prod(dims)
    if any(size < 0 for size in dims) or elements > MOST_ELEMENTS:
        raise BundleError(f"{name!r} has shape {dims}, but a bundle's have at most {MOST_ELEMENTS:,} elements")
    return elements


def constant_numbers(content: Any, kind: int, elements: int, data: Mapping[int, ByteRange]) -> Numbers:
    """Return the values of a constant, which are in `data` by field, if it is small enough to be a shape; else None."""
    if not elements or elements > _MOST_NUMBERS:
        return None if elements else ()
    number, place = next(iter(data.items()))
    values = bytes(content[place.begin : place.end])
    if number in _PACKED_INTEGERS:
        return tuple(integers(content, place))
    letter = "f" if number == _FLOATS else _RAW_FORMATS.get(kind) if number == _RAW else None
    if letter is None:
        return None
    return tuple(value for (value,) in struct.iter_unpack(f"<{letter}", values))


def require_small_shapes(nodes: Sequence[Node], constants: Mapping[str, Numbers]) -> None:
    """Refuse values much larger than the file and what the graph is given, and sizes that depend on a sample."""
    sizes = _Sizes({name: node for node in nodes for name in node.outputs if name}, constants)
    for node in nodes:
        for place, most in _SIZING.get(node.operator, {}).items():
            name = node.inputs[place] if place < len(node.inputs) else ""
            product = sizes.bound(name, ()) if name else 1.0
            if not product <= most:
                made = "that is not bounded" if math.isinf(product) else f"of {product:,.0f}, more than {most:,},"
                raise BundleError(
                    f"its operator {node.operator} makes a value of a size {made} which no bundle does: export again"
                )


class _Sizes:
    """Upper bounds on the product of a shape's sizes, those of the graph's inputs counted as one."""

    def __init__(self, makers: Mapping[str, Node], constants: Mapping[str, Numbers]) -> None:
        self._makers, self._constants = makers, constants
        self._bounds: dict[str, float] = {}

    def bound(self, name: str, above: tuple[str, ...]) -> float:
        """Return the bound of a value; infinite where it is no shape, or is made of itself."""
        if name in self._constants:
            numbers = self._constants[name]
            return math.inf if numbers is None else math.prod(max(1.0, abs(float(number))) for number in numbers)
        if name not in self._makers or name in above or len(above) > _MOST_NUMBERS:
            return math.inf
        if name not in self._bounds:
            self._bounds[name] = self._made(self._makers[name], (*above, name))
        return self._bounds[name]

    def _made(self, node: Node, above: tuple[str, ...]) -> float:
        if node.operator in _FROM_SIZES:
            return 1.0
        if node.operator in _PASSES_FIRST:
            return self.bound(node.inputs[0], above) if node.inputs else math.inf
        bounds = (self.bound(name, above) for name in node.inputs if name)
        if node.operator in _MULTIPLIES:
            return math.prod(bounds)
        if node.operator in _ADDS:
            return math.prod(bound + 1 for bound in bounds)
        if node.operator == "ConstantOfShape":  # its value is written as an attribute, and is 0 or 1 in shapes
            return 1.0
        return math.inf
