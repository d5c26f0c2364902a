"""Give an ONNX file other weights by its bytes alone: a device has no onnx package.

The file stays as it is but for the numbers of its initialisers, so that what was exported once runs with what was
trained later. Field numbers are those of onnx.proto3 (ONNX 1.18, IR version 10).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError

_GRAPH, _INITIALISER, _NAME, _RAW_DATA = 7, 5, 8, 9  # of ModelProto, of GraphProto, and of TensorProto
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # wire types of protocol buffers


@dataclass(frozen=True, slots=True)
class Place:
    """Where bytes lie in a file: ``[begin, end)``."""

    begin: int
    end: int


def with_weights(model: bytes, weights: Mapping[str, npt.NDArray[Any]]) -> bytearray:
    """Return an ONNX file with the values of some initialisers replaced.

    Args:
        model: The file.
        weights: By the initialiser's name, of the shape and type that it has.

    Raises:
        BundleError: The file holds no such initialiser as numbers, or of another size.
    """
    places = initialisers(model)
    content = bytearray(model)
    for name, value in weights.items():
        place, packed = places.get(name), np.ascontiguousarray(value).tobytes()
        if place is None or place.end - place.begin != len(packed):
            found = "it has none" if place is None else f"there are {place.end - place.begin}"
            raise BundleError(f"the model wants {len(packed)} bytes of numbers in {name}, but {found}: export again")
        content[place.begin : place.end] = packed
    return content


def initialisers(model: bytes) -> dict[str, Place]:
    """Return where each initialiser's numbers lie; those that are not kept as raw bytes are left out.

    Raises:
        BundleError: The file is no ONNX model.
    """
    found: dict[str, Place] = {}
    for graph in _fields(model, Place(0, len(model)), _GRAPH):
        for tensor in _fields(model, graph, _INITIALISER):
            names, data = list(_fields(model, tensor, _NAME)), list(_fields(model, tensor, _RAW_DATA))
            if names and data:
                found[model[names[0].begin : names[0].end].decode()] = data[0]
    return found


def _fields(content: bytes, within: Place, wanted: int) -> Iterator[Place]:
    """Yield the places of a message's fields of one number that have a length."""
    at = within.begin
    while at < within.end:
        key, at = _varint(content, at)
        kind, size = key & 7, {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(key & 7, 0)
        if kind == _VARINT:
            _, at = _varint(content, at)
        elif kind == _LENGTH:
            size, at = _varint(content, at)
            if key >> 3 == wanted:
                yield Place(at, at + size)
        elif not size:
            raise BundleError("the model file is not ONNX: export again")
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while at < len(content):
        byte = content[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:  # noqa: PLR2004 - the top bit says that more follow
            return value, at
    raise BundleError("the model file ends too early: export again")
