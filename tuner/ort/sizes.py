"""What a graph's values take at once on one sample: ONNX Runtime infers their shapes, and computes nothing."""

import math
import mmap
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tuner.errors import BundleError
from tuner.ort.protobuf import ByteRange, field, fields, integer, integers, joined, parsed, parts_of, ranges, texts

#: A larger constant is no shape: it is declared like an input, and not read.
_SMALL_BYTES = 2**12
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
        BundleError: It is no model.
    """
    try:
        if isinstance(model, bytes):
            skeleton, nodes = _skeleton(model, sample)
        else:
            with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                skeleton, nodes = _skeleton(content, sample)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BundleError("the model file is not ONNX: export again") from None
    try:
        outputs = opened(skeleton).get_outputs()
    except BundleError:  # an operator wants its constants: what opens the model itself says what else is wrong with it
        return 0
    begins = {name: at for at, (_, made) in enumerate(nodes) for name in made}
    ends = {name: at for at, names in enumerate(nodes) for name in (*names[0], *names[1])}
    changes = Counter[int]()
    for one in outputs:
        extents = (extent if isinstance(extent, int) else 1 for extent in one.shape)
        size = math.prod(extents) * _ELEMENT_BYTES.get(one.type, 8)
        changes[begins[one.name]] += size
        changes[ends[one.name] + 1] -= size
    return max(accumulate(changes[at] for at in range(len(nodes))), default=0)


def _skeleton(content: Any, sample: Sequence[int]) -> tuple[bytes, list[tuple[list[str], list[str]]]]:
    """Return a model without large constants, whose outputs are all its values; and what each node reads and makes."""
    whole = ByteRange(0, len(content))
    graphs = ranges(content, whole, 7)  # what is appended to a file is a second one, of the same graph
    messages = [content[node.begin : node.end] for graph in graphs for node in ranges(content, graph, 1)]
    nodes, constants = [(texts(node, 1), texts(node, 2)) for node in messages], dict[bytes, bool]()
    parts = [field(1, node) for node in messages] + [field(2, b"sizes")]
    for tensor in (one for graph in graphs for one in ranges(content, graph, 5)):
        (one,) = ranges(content, tensor, 8)
        name, held = content[one.begin : one.end], list(fields(content, tensor))
        extents = [extent for at, one in held if at == 1 for extent in integers(content, one)]
        kind = dict(held)[2]
        constants[name] = is_small = tensor.size <= _SMALL_BYTES
        parts.append(field(5, content[tensor.begin : tensor.end]) if is_small else _declared(name, kind, extents))
    for value in (one for graph in graphs for one in ranges(content, graph, 11)):
        info = parsed(content, value)
        (name,), (declared,) = parts_of(info, 1), parts_of(parsed(parts_of(info, 2)[0]), 1)
        if constants.get(name):  # an old file declares its constants as inputs too
            parts.append(field(11, content[value.begin : value.end]))
        elif name not in constants:
            dims = [dict(parsed(dim)) for shape in parts_of(parsed(declared), 2) for dim in parts_of(parsed(shape), 1)]
            parts.append(_declared(name, dict(parsed(declared))[1], sample or [dim.get(1, 1) for dim in dims]))
            sample = ()
    values = dict.fromkeys(name for _, made in nodes for name in made if name)
    parts += [field(12, field(1, name.encode())) for name in values]
    rest = [(at, one) for at, one in fields(content, whole) if one not in graphs]
    kept = [(at, one if isinstance(one, int) else content[one.begin : one.end]) for at, one in rest]
    return joined(kept) + field(7, b"".join(parts)), nodes


def _declared(name: bytes, kind: Any, extents: Sequence[Any]) -> bytes:
    """Return the field of a graph's input of a type and a shape."""
    shape = b"".join(field(1, integer(1, extent)) for extent in extents)
    return field(11, field(1, name) + field(2, field(1, integer(1, kind) + field(2, shape))))
