"""What a graph's values take at once on one sample: ONNX Runtime infers their shapes, and computes nothing."""

import math
import mmap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.arrays import Array
from tuner.errors import BundleError
from tuner.ort.protobuf import ByteRange, field, fields, integer, integers, joined, parsed, parts_of, ranges, texts

#: A larger constant is no shape: it is declared like an input, and not read.
_SMALL_BYTES = 2**12
#: Operators that compute shapes from shapes, of at most so many numbers.
_FOLLOWS = frozenset({"Add", "Cast", "Concat", "Constant", "Gather", "Identity", "Mul", "Reshape", "Slice", "Squeeze",
                      "Sub", "Unsqueeze"})  # fmt: skip
_FEW = 64
#: Attributes of a node that returns a shape.
_ENDS = (b"start", b"end")
_REALS = frozenset({"tensor(float)", "tensor(float16)", "tensor(double)"})
_ELEMENT_BYTES = {"tensor(float)": 4, "tensor(float16)": 2, "tensor(bool)": 1, "tensor(int8)": 1, "tensor(uint8)": 1}


def peak_bytes(model: Path | bytes, sample: Sequence[int], opened: Callable[[bytes], Any]) -> int:
    """Return what a graph's values take at once, in the order of its nodes.

    It is at least so much: sizes that depend on more than shapes count as 1, and what an operator takes within is not
    counted.

    Args:
        model: The ONNX file, or its content.
        sample: Shape of the graph's first input; where it is empty, the sizes that the file leaves open are 1.
        opened: Returns ONNX Runtime's session of a content.

    Raises:
        BundleError: It is no model, or one of its values has no elements.
    """
    try:
        if isinstance(model, bytes):
            graph = _read(model, sample)
        else:
            with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                graph = _read(content, sample)
        sizes = _sizes(graph, opened)
    except BundleError:  # an operator wants its constants: what opens the model itself says what else is wrong with it
        return 0
    except ArithmeticError:  # ONNX Runtime 1.31 divides by 0 in some of its kernels, which ends the process
        raise BundleError("a value in it has no elements") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BundleError("the model file is not ONNX: export again") from None
    begins = {name: at for at, one in enumerate(graph.nodes) for name in one.makes}
    ends = {name: at for at, one in enumerate(graph.nodes) for name in (*one.reads, *one.makes)}
    changes = Counter[int]()
    for name, size in sizes.items():
        changes[begins[name]] += size
        changes[ends[name] + 1] -= size
    return max(accumulate(changes[at] for at in range(len(graph.nodes))), default=0)


class _Node(NamedTuple):
    kind: str
    reads: list[str]
    makes: list[str]
    message: bytes


class _Graph(NamedTuple):
    """A model without large constants.

    Attributes:
        nodes: Its nodes.
        known: Fields of its small constants, by name.
        inputs: Fields of what is declared only.
        rest: What of the file is no graph.
    """

    nodes: list[_Node]
    known: dict[str, bytes]
    inputs: list[bytes]
    rest: bytes

    def content(self, nodes: Sequence[_Node], inputs: Sequence[bytes] = ()) -> bytes:
        """Return a model of some nodes, whose outputs are all that they make."""
        makes = dict.fromkeys(name for node in nodes for name in node.makes if name)
        parts = [field(1, node.message) for node in nodes] + [field(2, b"sizes"), *self.known.values(), *inputs]
        return self.rest + field(7, b"".join([*parts, *(field(12, field(1, name.encode())) for name in makes)]))


def _sizes(graph: _Graph, opened: Callable[[bytes], Any]) -> dict[str, int]:
    """Return the bytes of each value that the nodes make; what numbers follow from shapes give further shapes."""
    sizes, nodes, follow = dict[str, int](), graph.nodes, True
    constants = {name for node in nodes if node.kind == "Constant" for name in node.makes}
    while follow:
        session = opened(graph.content(nodes, graph.inputs))
        values = {one.name: one for one in (*session.get_inputs(), *session.get_outputs())}
        for one in session.get_outputs():
            extents = [extent if isinstance(extent, int) else 1 for extent in one.shape]
            if min(extents, default=1) < 1 and one.type in _REALS and one.name not in constants:
                raise ArithmeticError
            sizes[one.name] = math.prod(extents) * _ELEMENT_BYTES.get(one.type, 8)
        known = len(graph.known)
        _follow(nodes, values, graph, opened)
        follow = len(graph.known) > known
        nodes = [node for node in nodes if not graph.known.keys() >= {*node.makes}]
    return sizes


def _follow(nodes: Sequence[_Node], values: Mapping[str, Any], graph: _Graph, opened: Callable[[bytes], Any]) -> None:
    """Add to a graph's constants the few whole numbers that follow from the shapes of values."""
    static = {name for name, one in values.items() if all(isinstance(extent, int) for extent in one.shape)}
    if len(static) == len(values):
        return
    few = {name for name in static if math.prod(values[name].shape) <= _FEW and values[name].type == "tensor(int64)"}
    computed, ready = list[_Node](), {*graph.known}
    for node in nodes:
        if node.kind == "Shape" and node.reads[0] in static and len(values[node.reads[0]].shape) <= _FEW:
            own = [dict(parsed(one)) for one in parts_of(parsed(node.message), 5)]
            part = slice(*(next((_signed(one[3]) for one in own if one[1] == name), None) for name in _ENDS))
            graph.known[node.makes[0]] = _constant(node.makes[0], np.array(values[node.reads[0]].shape[part]))
        elif node.kind in _FOLLOWS and few.issuperset(node.makes) and ready.issuperset(filter(None, node.reads)):
            computed.append(node)
        else:
            continue
        ready.update(node.makes)
    names = [name for node in computed for name in node.makes]
    numbers = opened(graph.content(computed)).run(names, {}) if computed else []
    graph.known.update((name, _constant(name, one)) for name, one in zip(names, numbers, strict=True))


def _read(content: Any, sample: Sequence[int]) -> _Graph:
    whole = ByteRange(0, len(content))
    graphs = ranges(content, whole, 7)  # what is appended to a file is a second one, of the same graph
    messages = [content[node.begin : node.end] for graph in graphs for node in ranges(content, graph, 1)]
    nodes = [_Node(texts(node, 4)[0], texts(node, 1), texts(node, 2), node) for node in messages]
    known, inputs, constants = dict[str, bytes](), list[bytes](), set[bytes]()
    for tensor in (one for graph in graphs for one in ranges(content, graph, 5)):
        (one,) = ranges(content, tensor, 8)
        name, held = content[one.begin : one.end], list(fields(content, tensor))
        extents = [extent for at, one in held if at == 1 for extent in integers(content, one)]
        constants.add(name)
        if tensor.size <= _SMALL_BYTES:
            known[name.decode()] = field(5, content[tensor.begin : tensor.end])
        else:
            inputs.append(_declared(name, dict(held)[2], extents))
    for value in (one for graph in graphs for one in ranges(content, graph, 11)):
        info = parsed(content, value)
        (name,), (declared,) = parts_of(info, 1), parts_of(parsed(parts_of(info, 2)[0]), 1)
        if name.decode() in known:  # an old file declares its constants as inputs too
            known[name.decode()] += field(11, content[value.begin : value.end])
        elif name not in constants:
            dims = [dict(parsed(dim)) for shape in parts_of(parsed(declared), 2) for dim in parts_of(parsed(shape), 1)]
            inputs.append(_declared(name, dict(parsed(declared))[1], sample or [dim.get(1, 1) for dim in dims]))
            sample = ()
    rest = [(at, one) for at, one in fields(content, whole) if one not in graphs]
    kept = [(at, one if isinstance(one, int) else content[one.begin : one.end]) for at, one in rest]
    return _Graph(nodes, known, inputs, joined(kept))


def _signed(value: Any) -> int:
    return integers(b"", value)[0]


def _constant(name: str, values: Array) -> bytes:
    """Return the field of a constant of int64."""
    extents = [(1, extent) for extent in values.shape]
    return field(5, joined([*extents, (2, 7), (8, name.encode()), (9, values.astype("<i8").tobytes())]))


def _declared(name: bytes, kind: Any, extents: Sequence[Any]) -> bytes:
    """Return the field of a graph's input of a type and a shape."""
    shape = b"".join(field(1, integer(1, extent)) for extent in extents)
    return field(11, field(1, name) + field(2, field(1, integer(1, kind) + field(2, shape))))
