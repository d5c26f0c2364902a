"""What an ONNX file of a bundle may hold, checked by its bytes before ONNX Runtime reads any of it.

Refused are values outside the file, operators that run other graphs or are not ONNX's own, and sizes that the file
declares without holding them: ONNX Runtime allocates what a file declares, while it loads it. Field numbers are those
of onnx.proto3 (ONNX 1.23).
"""

import math
import mmap
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.bundle.onnx.protobuf import ByteRange, fields, varint
from tuner.bundle.onnx.shapes import MOST_ELEMENTS, Node, constant_numbers, require_small_shapes
from tuner.errors import BundleError
from tuner.reading import open_regular

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
    """Check the content of a file; see `check_model`.

    Raises:
        BundleError: It is not such a model, with the first reason.
    """
    try:
        _Check(content).model()
    except UnicodeDecodeError:
        raise BundleError("the model file is not ONNX: export again") from None


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

    def _text(self, value: int | ByteRange) -> str:
        if isinstance(value, int):
            raise BundleError("the model file is not ONNX: export again")
        return bytes(self.content[value.begin : value.end]).decode()

    def _node(self, message: ByteRange) -> None:
        operator, domain, inputs, outputs = "", "", [], []
        for number, value in self._fields(message, "node", _NODE):
            if number == 1:
                inputs.append(self._text(value))
            elif number == 2:  # noqa: PLR2004 - an output
                outputs.append(self._text(value))
            elif number == 4:  # noqa: PLR2004 - the operator
                operator = self._text(value)
            elif number == 7:  # noqa: PLR2004 - its domain
                domain = self._text(value)
            elif number == 5 and isinstance(value, ByteRange):  # noqa: PLR2004 - an attribute
                self._attribute(value, outputs)
        if domain not in {"", "ai.onnx"} or operator not in OPERATORS:
            name = f"{domain}.{operator}" if domain else operator
            raise BundleError(f"it uses the operator {name!r}, which bundles do without: use a model without it")
        self.nodes.append(Node(operator, tuple(inputs), tuple(outputs)))

    def _attribute(self, message: ByteRange, outputs: list[str]) -> None:
        name, numbers, reals = "", list[int](), list[float]()
        for number, value in self._fields(message, "attribute", _ATTRIBUTE):
            if number == 1:
                name = self._text(value)
            elif number in {3, 8}:
                numbers += self._integers(value)
            elif number in {2, 7} and isinstance(value, ByteRange) and value.size % 4 == 0:
                reals += array("f", bytes(self.content[value.begin : value.end][: 4 * _MOST_REALS]))
            elif number == 5 and isinstance(value, ByteRange):  # noqa: PLR2004 - a constant's value
                self._tensor(value, outputs[0] if outputs else "")
        if name in _SPREADING and any(abs(number) > _MOST_SPREAD for number in numbers):
            raise BundleError(f"the attribute {name} is {numbers}, beyond {_MOST_SPREAD}: export again")
        if name in {"value_int", "value_ints"} and outputs:
            self.constants[outputs[0]] = tuple(numbers)
        if name in {"value_float", "value_floats"} and outputs and len(reals) < _MOST_REALS:
            self.constants[outputs[0]] = tuple(reals)

    def _tensor(self, message: ByteRange, output: str = "") -> None:
        """Check that a tensor holds the values that it declares, and note small ones."""
        name, dims, kind = output, list[int](), 0
        data, seen = dict[int, ByteRange](), Counter[int]()
        for number, value in self._fields(message, "tensor", _TENSOR):
            seen[number] += number not in {1, 16}  # sizes, and remarks
            if number == 1:
                dims += self._integers(value)
            elif number == 2 and isinstance(value, int):  # noqa: PLR2004 - the type
                kind = value
            elif number == 8:  # noqa: PLR2004 - the name
                name = output or self._text(value)
            elif number == 14 and value:  # noqa: PLR2004 - where the values are
                raise BundleError("it holds values outside the file, which no bundle does: export again")
            elif number in _TENSOR_DATA and isinstance(value, ByteRange):
                data[number] = value
            elif number in _TENSOR_DATA:
                raise BundleError(f"the values of {name!r} are not packed: export again")
        if kind not in ELEMENT_BYTES or len(data) > 1 or max(seen.values(), default=0) > 1:
            raise BundleError(f"the values of {name!r} are of no type that a bundle has: export again")
        elements = _elements(dims, name)
        held = sum(place.size for place in data.values())
        size = ELEMENT_BYTES[kind] if {4, 9, 10} & set(data) or not data else None  # of integers of seven bits a byte
        if elements * size != held if size is not None else not elements <= held <= _VARINT_BYTES * elements:
            raise BundleError(f"{name!r} has shape {dims}, but {held} bytes of values: export again")
        self.constants[name] = constant_numbers(self.content, kind, elements, data)

    def _value(self, message: ByteRange) -> None:
        """Check the declared shape of a value: a tensor's, of a bounded size."""
        for number, value in fields(self.content, message):
            if number != 2 or isinstance(value, int):  # noqa: PLR2004 - the type
                continue
            for kind, tensor in fields(self.content, value):
                if kind == 6:  # noqa: PLR2004 - a remark
                    continue
                if kind == 4 and not isinstance(tensor, int):  # noqa: PLR2004 - a sequence: of what a split makes
                    continue
                if kind != 1 or isinstance(tensor, int):
                    raise BundleError("it has values that are not tensors, which no bundle has: export again")
                _elements([size for size in self._dims(tensor) if size is not None], "a value of the graph")

    def _dims(self, tensor: ByteRange) -> Iterator[int | None]:
        for number, shape in fields(self.content, tensor):
            if number != 2 or isinstance(shape, int):  # noqa: PLR2004 - the shape
                continue
            for _, dim in self._fields(shape, "shape", frozenset({1})):
                if isinstance(dim, ByteRange):
                    sizes = [value for at, value in fields(self.content, dim) if at == 1 and isinstance(value, int)]
                    yield _signed(sizes[-1]) if sizes else None

    def _integers(self, value: int | ByteRange) -> list[int]:
        """Return one integer, or the packed ones of a field."""
        if isinstance(value, int):
            return [_signed(value)]
        self.left -= value.size
        if self.left < 0:
            raise BundleError(f"the graph has more than {MOST_FIELDS:,} parts: no bundle has")
        numbers, at = [], value.begin
        while at < value.end:
            number, at = varint(self.content, at, value.end)
            numbers.append(_signed(number))
        return numbers


def _elements(dims: list[int], name: str) -> int:
    """Return the number of elements of a shape."""
    elements = math.prod(dims)
    if any(size < 0 for size in dims) or elements > MOST_ELEMENTS:
        raise BundleError(f"{name!r} has shape {dims}, but a bundle's have at most {MOST_ELEMENTS:,} elements")
    return elements


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
