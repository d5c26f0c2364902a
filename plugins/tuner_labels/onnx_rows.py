"""ONNX files with another number of labels, by their bytes: a device has no onnx package.

Field numbers are those of onnx.proto3 (ONNX 1.23).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tuner.arrays import Array
from tuner.bundle.onnx_bytes import ByteRange, fields, initialisers, ranges
from tuner.bundle.onnx_check import Node
from tuner.ort import answer

_GRAPH, _METADATA = 7, 14  # of ModelProto
_NODE, _INITIALISER, _INPUT, _OUTPUT, _VALUE_INFO = 1, 5, 11, 12, 13  # of GraphProto
_TENSOR_NAME = 8
#: Metadata of a traced step, and the constant that is added to it.
_STEP, _COUNT = "tuner.step", "/labels"
#: Operators whose output has labels where an input has, on the way from a label to the gradient of the head's bias.
_PASSES = frozenset({"Add", "Div", "Mul", "Neg", "ReduceSum", "Sub"})


@dataclass(frozen=True, slots=True)
class Resize:
    """What changes in a file.

    Attributes:
        count: New number of labels.
        axes: Axis of the labels by the name of an input or output.
        tensors: New values of initialisers, by name.
        counted: Outputs of nodes whose second input is the number of labels; see `counted_nodes`.
        nodes: Other nodes, by the output of the node that each takes the place of.
    """

    count: int
    axes: Mapping[str, int]
    tensors: Mapping[str, Array] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    nodes: Mapping[str, bytes] = field(default_factory=dict)


def resized(content: bytes, change: Resize) -> bytes:
    """Return an ONNX file with another number of labels; what it notes of values in between is left out.

    Raises:
        BundleError: The bytes are no ONNX file.
    """
    parts = list[bytes]()
    for number, value in fields(content, ByteRange(0, len(content))):
        if isinstance(value, int):
            parts.append(answer.integer(number, value))
            continue
        part = content[value.begin : value.end]
        if number == _GRAPH:
            part = _graph(content, value, change)
        elif number == _METADATA:
            part = _metadata(part, change)
        parts.append(answer.field(number, part))
    return b"".join(parts)


def nodes_of(content: bytes) -> list[Node]:
    """Return the nodes of a file, in the order they are computed in."""
    graphs = ranges(content, ByteRange(0, len(content)), _GRAPH)
    return [_node(content, place) for graph in graphs for place in ranges(content, graph, _NODE)]


def counted_nodes(content: bytes, count: int) -> frozenset[str]:
    """Return the outputs of a training step's nodes that make tensors of as many numbers as there are labels."""
    places, target = initialisers(content), np.int64(count).tobytes()
    constants = {name: content[place.begin : place.end] for name, place in places.items()}
    found, wide = set[str](), set[str]()
    for node in nodes_of(content):
        if node.operator == "OneHot":
            found.add(node.outputs[0])
            wide.add(node.outputs[0])
        elif node.operator == "Reshape" and node.inputs[0] in wide and constants.get(node.inputs[1]) == target:
            found.add(node.outputs[0])
        elif node.operator in _PASSES and not wide.isdisjoint(node.inputs):
            wide.update(node.outputs)
    return frozenset(found)


def _graph(content: bytes, graph: ByteRange, change: Resize) -> bytes:
    parts = list[bytes]()
    for number, value in fields(content, graph):
        if number == _VALUE_INFO or isinstance(value, int):
            continue
        part = content[value.begin : value.end]
        if number == _NODE:
            output = _text(content, value, 2)
            part = _with_count(content, value) if output in change.counted else change.nodes.get(output, part)
        elif number == _INITIALISER and (name := _text(content, value, _TENSOR_NAME)) in change.tensors:
            part = answer.tensor(name, np.ascontiguousarray(change.tensors[name]))
        elif number in {_INPUT, _OUTPUT} and (name := _text(content, value, 1)) in change.axes:
            part = _value(part, (2, 1, 2), change.axes[name], change.count)
        parts.append(answer.field(number, part))
    if change.counted:
        parts.append(answer.field(_INITIALISER, answer.tensor(_COUNT, np.array([change.count], np.int64))))
    return b"".join(parts)


def _value(part: bytes, path: tuple[int, ...], axis: int, count: int) -> bytes:
    """Return a ValueInfoProto with another size of one axis: its shape is in the fields of `path`."""
    whole = list(fields(part, ByteRange(0, len(part))))
    sizes = [at for at, (number, _) in enumerate(whole) if not path and number == 1]
    parts = list[bytes]()
    for at, (number, value) in enumerate(whole):
        if isinstance(value, int):
            parts.append(answer.integer(number, value))
            continue
        inner = part[value.begin : value.end]
        if path and number == path[0]:
            inner = _value(inner, path[1:], axis, count)
        elif sizes and at == sizes[axis]:
            inner = answer.integer(1, count)
        parts.append(answer.field(number, inner))
    return b"".join(parts)


def _with_count(content: bytes, node: ByteRange) -> bytes:
    """Return a node whose second input is the number of labels."""
    parts, inputs = list[bytes](), 0
    for number, value in fields(content, node):
        if isinstance(value, int):
            parts.append(answer.integer(number, value))
            continue
        inputs += number == 1
        is_second = number == 1 and inputs == 2  # noqa: PLR2004 - OneHot's depth, Reshape's shape
        parts.append(answer.field(number, _COUNT.encode() if is_second else content[value.begin : value.end]))
    return b"".join(parts)


def _metadata(part: bytes, change: Resize) -> bytes:
    """Return an entry of the metadata; that of a training step says of what shape its inputs are."""
    whole = ByteRange(0, len(part))
    if _text(part, whole, 1) != _STEP:
        return part
    about = json.loads(_text(part, whole, 2))
    for port in about["inputs"]:
        if port["name"] in change.axes:
            port["shape"][change.axes[port["name"]]] = change.count
    return answer.field(1, _STEP.encode()) + answer.field(2, json.dumps(about).encode())


def _node(content: bytes, place: ByteRange) -> Node:
    inputs, outputs = (tuple(_texts(content, place, number)) for number in (1, 2))
    return Node(_text(content, place, 4), inputs, outputs)


def _texts(content: bytes, message: ByteRange, number: int) -> list[str]:
    return [content[place.begin : place.end].decode() for place in ranges(content, message, number)]


def _text(content: bytes, message: ByteRange, number: int) -> str:
    return next(iter(_texts(content, message, number)), "")
