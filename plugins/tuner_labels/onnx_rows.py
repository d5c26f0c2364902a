"""ONNX files with another number of labels, by their bytes: a device has no onnx package.

Field numbers are those of onnx.proto3 (ONNX 1.23).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tuner.arrays import Array
from tuner.bundle.onnx_bytes import initialisers
from tuner.bundle.onnx_check import Node
from tuner.ort import answer
from tuner.ort.protobuf import integer, joined, parsed, parts_of, texts

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
    changed = {_GRAPH: _graph, _METADATA: _metadata}
    return joined(
        [
            (number, changed[number](part, change) if number in changed and isinstance(part, bytes) else part)
            for number, part in parsed(content)
        ]
    )


def nodes_of(content: bytes) -> list[Node]:
    """Return the nodes of a file, in the order they are computed in."""
    graphs = parts_of(parsed(content), _GRAPH)
    return [_node(node) for graph in graphs for node in parts_of(parsed(graph), _NODE)]


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


def _graph(graph: bytes, change: Resize) -> bytes:
    parts = [(number, _changed(number, part, change)) for number, part in parsed(graph) if number != _VALUE_INFO]
    if change.counted:
        parts.append((_INITIALISER, answer.tensor(_COUNT, np.array([change.count], np.int64))))
    return joined(parts)


def _changed(number: int, part: int | bytes, change: Resize) -> int | bytes:
    """Return a field of the graph as it is with another number of labels."""
    if isinstance(part, int):
        return part
    if number == _NODE:
        output = texts(part, 2)[0]
        return _with_count(part) if output in change.counted else change.nodes.get(output, part)
    if number == _INITIALISER and (name := texts(part, _TENSOR_NAME)[0]) in change.tensors:
        return answer.tensor(name, np.ascontiguousarray(change.tensors[name]))
    if number in {_INPUT, _OUTPUT} and (name := texts(part, 1)[0]) in change.axes:
        return answer.with_size(part, change.axes[name], integer(1, change.count))
    return part


def _with_count(node: bytes) -> bytes:
    """Return a node whose second input is the number of labels."""
    parts = parsed(node)
    second = [at for at, (number, _) in enumerate(parts) if number == 1][1]  # OneHot's depth, Reshape's shape
    parts[second] = 1, _COUNT.encode()
    return joined(parts)


def _metadata(entry: bytes, change: Resize) -> bytes:
    """Return an entry of the metadata; that of a training step says of what shape its inputs are."""
    if texts(entry, 1) != [_STEP]:
        return entry
    about = json.loads(texts(entry, 2)[0])
    for port in about["inputs"]:
        if port["name"] in change.axes:
            port["shape"][change.axes[port["name"]]] = change.count
    return joined([(1, _STEP.encode()), (2, json.dumps(about).encode())])


def _node(node: bytes) -> Node:
    return Node(texts(node, 4)[0], *(tuple(texts(node, number)) for number in (1, 2)))
