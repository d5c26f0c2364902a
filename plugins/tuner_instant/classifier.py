"""An ONNX classifier by its bytes: its last linear layer, its cuts, and the network up to one with another head.

Field numbers are those of onnx.proto3 (ONNX 1.23).
"""

import math
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tuner.arrays import Array, Floats
from tuner.bundle.onnx_check import check_model
from tuner.errors import BundleError, TaskError
from tuner.ort import answer
from tuner.ort.protobuf import ByteRange, Message, field, integer, joined, parsed, parts_of, ranges, texts, varint
from tuner.ort.session import FEATURES, LOGITS
from tuner.reading import kind_of, open_regular
from tuner.ridge.solve import LinearHead
from tuner_instant.bits import LEAST, in_int8
from tuner_instant.cuts import LAYERS, Cut, Step, cuts_of, shape_nodes, shapes_of

_GRAPH = 7  # of ModelProto
_NODE, _INITIALISER, _INPUT, _OUTPUT, _VALUE_INFO = 1, 5, 11, 12, 13  # of GraphProto
_INPUTS, _OUTPUTS, _OPERATOR, _ATTRIBUTE = 1, 2, 4, 5  # of NodeProto
_DIMS, _TYPE, _FLOATS, _NAME, _RAW = 1, 2, 4, 8, 9  # of TensorProto
_FLOAT32, _INT64 = 1, 7  # of TensorProto.DataType
#: Operators after the head that change no order of the classes.
_AFTER = frozenset({"Identity", "LogSoftmax", "Sigmoid", "Softmax"})
#: Name of a bundle's input. Names of the head's weights in a bundle's files; in its model they have `PART` in front.
INPUT, WEIGHT, BIAS, PART = "input", "weight", "bias", "tail"
WAY_OUT = "give a classifier that ends in one linear layer (Gemm, or MatMul and Add)"


@dataclass(frozen=True, slots=True, eq=False)
class Classifier:
    """An ONNX file that ends in a linear layer. Its content is read when it is asked for, and not kept in memory.

    Attributes:
        path: The file.
        reads: Name of what enters the head, float32 [n, features].
        outputs, features: Sizes of the head.
        shape: Shape of one sample; None for a size that the file leaves open.
    """

    path: Path
    reads: str
    outputs: int
    features: int
    shape: tuple[int | None, ...]

    @classmethod
    def open(cls, path: Path) -> "Classifier":
        """Read a file.

        Raises:
            TaskError: There is none, or it is no classifier whose last layer is linear.
        """
        if kind_of(path) != "file":
            raise TaskError(f"--model {path}: no such file: give an ONNX file of a classifier")
        try:
            check_model(path)
            _, graph = _content(path)
            reads, head = _Nodes(graph).head()
            _, shape = _taken(_before(graph, reads))
        except (BundleError, OSError) as error:
            reason = str(error).removeprefix(f"{path}: ").replace(": export again", "")
            more = ": save it in one file (external_data=False)" if "outside the file" in reason else ""
            raise TaskError(f"--model {path}: {reason}{more}") from None
        outputs, features = head.weight.shape
        return cls(path, reads, outputs, features, shape)

    def head(self, rows: Sequence[int]) -> LinearHead:
        """Return some rows of the head as it was given."""
        head = _Nodes(_content(self.path)[1]).head()[1]
        return LinearHead(head.weight[list(rows)], head.bias[list(rows)])

    def cuts(self, shape: Sequence[int]) -> tuple[Cut, ...]:
        """Return the cuts of the network for samples of a shape, the last features at the end; see `cuts_of`.

        Raises:
            BundleError: The network cannot run such a sample.
        """
        model, graph = _content(self.path)
        graph = _taken(_before(graph, self.reads))[0]
        steps = _Nodes(graph).steps(self.reads)
        added = parsed(parts_of(parsed(shape_nodes(steps)), _GRAPH)[0])
        with TemporaryDirectory() as folder:
            path = _written(Path(folder) / "shapes.onnx", model, [*graph, *added])
            del graph
            return cuts_of(steps, shapes_of(path, steps, np.zeros((1, *shape), np.float32)), self.reads)

    def write(self, path: Path, cuts: Sequence[Cut], head: LinearHead | None = None, bits: int = 32) -> Path:
        """Write the network up to the last of some cuts: its outputs are their features, by `feature_name`.

        With a head, which reads the features of the one cut, `LOGITS` are an output too. `bits` is the width of the
        weights of the other layers: 32, or 8.
        """
        names = [FEATURES] if len(cuts) == 1 else [feature_name(at) for at in range(len(cuts))]
        nodes = [node for cut, name in zip(cuts, names, strict=True) for node in cut.nodes(name)]
        outputs, values = list(names), dict[str, Floats]()
        if head is not None:
            weight, bias, turned, product = (f"{PART}.{name}" for name in (WEIGHT, BIAS, "turned", "product"))
            nodes += [
                answer.node("Transpose", (weight,), (turned,)),
                answer.node("MatMul", (FEATURES, turned), (product,)),
                answer.node("Add", (product, bias), (LOGITS,)),
            ]
            outputs, values = [*outputs, LOGITS], {weight: head.weight.astype("f4"), bias: head.bias.astype("f4")}
        model, graph = _content(self.path)
        added = parsed(answer.appended(nodes, values, dict.fromkeys(outputs, "float32")))
        graph = _taken(_before(graph, *(cut.value for cut in cuts)))[0]
        graph = graph if bits == 32 else in_int8(graph, _Nodes(graph).layers())  # noqa: PLR2004 - float32
        graph += parsed(parts_of(added, _GRAPH)[0])
        return _written(path, model, graph)


def feature_name(at: int) -> str:
    """Return the name of the features of one cut of several."""
    return f"{FEATURES}.{at}"


def _content(path: Path) -> tuple[Message, Message]:
    """Return a file's own fields, without its graph, and the fields of its graph."""
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        content: Any = whole
        (graph,) = ranges(content, ByteRange(0, len(content)), _GRAPH)
        first, last = parsed(content[: graph.begin - len(_before_bytes(graph.size))]), parsed(content[graph.end :])
        return [*first, *last], parsed(content, graph)


def _written(path: Path, model: Message, graph: Message) -> Path:
    """Write a file part by part: joined, its content would be in memory twice."""
    size = sum(len(joined([part])) for part in graph)
    with path.open("wb") as file:
        file.write(joined(model) + _before_bytes(size))
        file.writelines(joined([part]) for part in graph)
    return path


def _before_bytes(size: int) -> bytes:
    """Return what a file has before so many bytes of its graph: the field's number, and the size."""
    return field(_GRAPH, b"")[:-1] + integer(0, size)[1:]


class _Nodes:
    """A graph's nodes by what they make, and its initialisers, both by name."""

    def __init__(self, graph: Message) -> None:
        self.makers = {name: node for node in parts_of(graph, _NODE) for name in texts(node, _OUTPUTS)}
        self.tensors = {texts(tensor, _NAME)[0]: tensor for tensor in parts_of(graph, _INITIALISER)}
        self.outputs = [texts(value, 1)[0] for value in parts_of(graph, _OUTPUT)]

    def head(self) -> tuple[str, LinearHead]:
        """Return the name of what the last linear layer reads, and the layer."""
        name = LOGITS if LOGITS in self.outputs else self.outputs[0]
        while self._operator(name) in _AFTER:
            name = self._inputs(name)[0]
        operator, bias, scales = self._operator(name), np.zeros(1), dict[str, float]()
        if operator == "Add":
            name, other = sorted(self._inputs(name), key=lambda one: one in self.tensors)
            if other not in self.tensors:
                raise BundleError(f"what is added to its last layer is no constant: {WAY_OUT}")
            operator, bias = self._operator(name), self._values(other)
        if operator not in {"Gemm", "MatMul"}:
            layer = {"Conv": "a convolution", "": "no layer"}.get(operator, f"the operator {operator}")
            raise BundleError(f"its last layer is {layer}, and not linear: {WAY_OUT}")
        reads, matrix, *more = self._inputs(name)
        if operator == "Gemm":
            scales = _numbers(self.makers[name])
            bias = scales.get("beta", 1.0) * self._values(more[0]) if more else bias
        weight = scales.get("alpha", 1.0) * self._matrix(matrix)
        weight = weight if scales.get("transB") else weight.T
        if scales.get("transA") or bias.size not in {1, len(weight)}:
            raise BundleError(f"its last layer has a bias of shape {list(bias.shape)}, or is transposed: {WAY_OUT}")
        return reads, LinearHead(weight, np.broadcast_to(bias.ravel(), len(weight)).copy())

    def steps(self, last: str) -> tuple[Step, ...]:
        """Return the nodes up to a value that compute on samples: not those on constants, and on sizes."""
        needed, moving, found = self.needed(last), {INPUT}, list[Step]()
        for node in dict.fromkeys(self.makers.values()):
            operator, makes = texts(node, _OPERATOR)[0], tuple(name for name in texts(node, _OUTPUTS) if name)
            reads = [name for name in texts(node, _INPUTS) if name]
            own = tuple(name for name in reads if name in moving)
            if own and needed.intersection(makes) and operator not in {"Shape", "Size"}:
                sizes = {name: math.prod(_tensor(self.tensors[name])[1]) for name in reads if name in self.tensors}
                found.append(Step(operator, own, makes, sizes))
                moving.update(makes)
        return tuple(found)

    def layers(self) -> dict[bytes, tuple[str, Floats]]:
        """Return the weights of layers that are worth int8: name and values, float32, by the initialiser's bytes."""
        found = dict[bytes, tuple[str, Floats]]()
        for node in self.makers.values():
            for name in texts(node, _INPUTS)[1:] if texts(node, _OPERATOR)[0] in LAYERS else ():
                kind, dims, data = _tensor(self.tensors.get(name, b""))
                if kind == _FLOAT32 and len(dims) > 1 and len(data) >= 4 * LEAST:
                    found[self.tensors[name]] = name, np.frombuffer(data, "<f4").reshape(dims)
        return found

    def needed(self, *names: str) -> set[str]:
        """Return the names of all that some values are computed from, and their own."""
        found, pending = set[str](), list(names)
        while pending:
            one = pending.pop()
            if one not in found:
                found.add(one)
                pending += self._inputs(one)
        return found

    def _operator(self, name: str) -> str:
        return texts(self.makers[name], _OPERATOR)[0] if name in self.makers else ""

    def _inputs(self, name: str) -> list[str]:
        return texts(self.makers[name], _INPUTS) if name in self.makers else []

    def _matrix(self, name: str) -> Array:
        if self._operator(name) == "Transpose":
            return self._matrix(self._inputs(name)[0]).T
        values = self._values(name)
        if values.ndim != 2:  # noqa: PLR2004 - a matrix
            raise BundleError(f"the weight of its last layer has shape {list(values.shape)}: {WAY_OUT}")
        return values

    def _values(self, name: str) -> Array:
        kind, dims, data = _tensor(self.tensors.get(name, b""))
        if kind != _FLOAT32:
            raise BundleError(f"the weights of its last layer ({name}) are not stored in it in float32: {WAY_OUT}")
        return np.frombuffer(data, "<f4").reshape(dims).astype(np.float64)


def _before(graph: Message, *names: str) -> Message:
    """Return a graph with only what some values are computed from, and without outputs."""
    kept = _Nodes(graph).needed(*names)
    clash = sorted(kept & {FEATURES, LOGITS, f"{PART}.{WEIGHT}", f"{PART}.{BIAS}"} - {*names})
    if clash:
        raise BundleError(f"it has a value named {clash[0]!r} before its head: rename that")
    named = {_NODE: _OUTPUTS, _INITIALISER: _NAME}
    return [
        (number, value)
        for number, value in graph
        if number not in {_OUTPUT, _VALUE_INFO}
        and (number not in named or (isinstance(value, bytes) and kept.intersection(texts(value, named[number]))))
    ]


def _taken(graph: Message) -> tuple[Message, tuple[int | None, ...]]:
    """Return a graph that takes batches of any size, by the name `INPUT`, and the shape of a sample."""
    nodes = _Nodes(graph)
    inputs = [value for value in parts_of(graph, _INPUT) if texts(value, 1)[0] not in nodes.tensors]
    if len(inputs) != 1:
        raise BundleError(f"it has {len(inputs)} inputs, not one: {WAY_OUT}")
    (value,), changed = inputs, dict[int | bytes, bytes]()
    name, (batch, *shape) = texts(value, 1)[0], _sizes(value) or [None]
    if batch is not None:
        reshapes = [node for node in nodes.makers.values() if texts(node, _OPERATOR) == ["Reshape"]]
        shapes = {nodes.tensors[one] for node in reshapes for one in texts(node, _INPUTS)[1:] if one in nodes.tensors}
        changed = {tensor: _reshaped(tensor, batch) for tensor in shapes}
    renamed = joined([(number, INPUT.encode() if number == 1 else part) for number, part in parsed(value)])
    changed[value] = renamed if batch is None else answer.with_size(renamed, 0, field(2, b"n"))
    first: Message = [] if name == INPUT else [(_NODE, answer.node("Identity", (INPUT,), (name,)))]
    return first + [(number, changed.get(part, part)) for number, part in graph], tuple(shape)


def _reshaped(tensor: bytes, batch: int) -> bytes:
    """Return the shape that something is brought to; if it begins with the batch's size, that is open."""
    kind, _, data = _tensor(tensor)
    sizes = np.frombuffer(data, "<i8") if kind == _INT64 else np.zeros(0, np.int64)
    if not len(sizes) or sizes[0] != batch or (sizes < 0).any():
        return tensor
    return answer.tensor(texts(tensor, _NAME)[0], np.array([-1, *sizes[1:]], np.int64))


def _sizes(value: bytes) -> list[int | None]:
    """Return the sizes of a ValueInfoProto's shape, None where one is open."""
    for wanted in answer.SHAPE:
        value = next(iter(parts_of(parsed(value), wanted)), b"")
    dims = [dict(parsed(part)).get(1) for part in parts_of(parsed(value), 1)]
    return [size if isinstance(size, int) and size > 0 else None for size in dims]


def _tensor(message: bytes) -> tuple[int | bytes, tuple[int, ...], bytes]:
    """Return a tensor's type, sizes and values."""
    dims, own = list[int](), dict(parsed(message))
    for number, value in parsed(message):
        if number == _DIMS and isinstance(value, int):
            dims.append(value)
        elif number == _DIMS and isinstance(value, bytes):
            at = 0
            while at < len(value):
                size, at = varint(value, at, len(value))
                dims.append(size)
    data = own.get(_RAW, own.get(_FLOATS, b""))
    return own.get(_TYPE, 0), tuple(dims), data if isinstance(data, bytes) else b""


def _numbers(node: bytes) -> dict[str, float]:
    """Return a node's attributes that are single numbers."""
    found = dict[str, float]()
    for own in (dict(parsed(value)) for value in parts_of(parsed(node), _ATTRIBUTE)):
        name, real, whole = own.get(1), own.get(2), own.get(3)
        if isinstance(name, bytes):
            found[name.decode()] = struct.unpack("<f", real)[0] if isinstance(real, bytes) else int(whole or 0)
    return found
