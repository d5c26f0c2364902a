"""ONNX files by their bytes: a device has no onnx package, and a library would allocate what a file declares.

Field numbers are those of onnx.proto3 (ONNX 1.23).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # wire types
_VARINT_BITS = 64
_CONTINUES = 128
_GRAPH, _INITIALISER, _NAME, _RAW_DATA = 7, 5, 8, 9  # of ModelProto, of GraphProto, and twice of TensorProto


class ByteRange(NamedTuple):
    """Bytes ``[begin, end)`` of a file."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.begin


def fields(content: bytes, message: ByteRange) -> Iterator[tuple[int, int | ByteRange]]:
    """Yield the number of each of a message's fields, and its value: an integer, or where its bytes are in `content`.

    Raises:
        BundleError: The bytes are no message.
    """
    at, end = message.begin, message.end
    while at < end:
        key, at = (content[at], at + 1) if content[at] < _CONTINUES else varint(content, at, end)
        kind = key & 7
        if kind in {_VARINT, _LENGTH}:
            value, at = (content[at], at + 1) if at < end and content[at] < _CONTINUES else varint(content, at, end)
            if kind == _VARINT:
                yield key >> 3, value
                continue
            size = value
        elif kind in {_EIGHT_BYTES, _FOUR_BYTES}:
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise BundleError("the model file is not ONNX: export again")
        if size > end - at:
            raise BundleError("the model file ends too early: export again")
        yield key >> 3, ByteRange(at, at + size)
        at += size


def varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, at most 64 in all, and the position after it."""
    value = shift = 0
    while at < end and shift < _VARINT_BITS:
        byte = content[at]
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < _CONTINUES:
            return value, at
    raise BundleError("the model file ends too early: export again")


def with_weights(model: bytes, weights: Mapping[str, npt.NDArray[Any]]) -> bytearray:
    """Return an ONNX file with the values of some initialisers replaced, by name.

    Raises:
        BundleError: The file has no such initialiser as raw bytes, or one of another size.
    """
    places = initialisers(model)
    content = bytearray(model)
    for name, value in weights.items():
        place, packed = places.get(name), np.ascontiguousarray(value).tobytes()
        if place is None or place.end - place.begin != len(packed):
            actual = "it has none" if place is None else f"there are {place.end - place.begin}"
            raise BundleError(f"the model must hold {len(packed)} bytes of {name}, but {actual}: export again")
        content[place.begin : place.end] = packed
    return content


def initialisers(model: bytes) -> dict[str, ByteRange]:
    """Return the bytes of each initialiser's values; one whose values are not raw bytes is left out."""
    places: dict[str, ByteRange] = {}
    for graph in ranges(model, ByteRange(0, len(model)), _GRAPH):
        for tensor in ranges(model, graph, _INITIALISER):
            names, data = ranges(model, tensor, _NAME), ranges(model, tensor, _RAW_DATA)
            if names and data:
                places[model[names[0].begin : names[0].end].decode()] = data[0]
    return places


def ranges(content: bytes, message: ByteRange, wanted: int) -> list[ByteRange]:
    """Return the bytes of a message's fields of one number that have a length."""
    return [value for number, value in fields(content, message) if number == wanted and isinstance(value, ByteRange)]
