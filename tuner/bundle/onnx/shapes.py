"""Shapes that a graph computes from numbers in its file: bounded before anything of that size is allocated."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.bundle.onnx.protobuf import ByteRange, varint
from tuner.errors import BundleError

#: Largest number of elements that a file may declare, or compute from its own numbers: 1 GiB of float32.
MOST_ELEMENTS = 2**28
_MOST_NUMBERS = 64  # a shape has fewer
_RAW, _PACKED_INTEGERS, _FLOATS = 9, frozenset({5, 7, 11}), 4
_RAW_FORMATS = {1: "f", 6: "i", 7: "q", 11: "d", 12: "I", 13: "Q"}

Numbers = tuple[int, ...] | tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph.

    Attributes:
        operator: Name of its operator.
        inputs: Names of its inputs; empty where an optional one is left out.
        outputs: Names of its outputs.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


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


def constant_numbers(content: Any, kind: int, elements: int, data: Mapping[int, ByteRange]) -> Numbers:
    """Return the values of a constant, where it is small enough to be a shape; None otherwise.

    Args:
        content: The file.
        kind: Number of the element's type.
        elements: Number of elements.
        data: Where the values are, by the field that holds them.
    """
    if not elements or elements > _MOST_NUMBERS:
        return None if elements else ()
    number, place = next(iter(data.items()))
    values = bytes(content[place.begin : place.end])
    if number in _PACKED_INTEGERS:
        numbers, at = list[int](), place.begin
        while at < place.end:
            value, at = varint(content, at, place.end)
            numbers.append(value - 2**64 if value >= 2**63 else value)
        return tuple(numbers)
    letter = "f" if number == _FLOATS else _RAW_FORMATS.get(kind) if number == _RAW else None
    if letter is None:
        return None
    return tuple(value for (value,) in struct.iter_unpack(f"<{letter}", values))


def require_small_shapes(nodes: Sequence[Node], constants: Mapping[str, Numbers]) -> None:
    """Refuse a graph whose own numbers make a value much larger than the file and what the graph is given.

    Raises:
        BundleError: It has such a value, or a size that depends on what a sample holds.
    """
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
