"""Replace weights in an ONNX file, byte by byte: a device has no onnx package.

Only the values of initialisers change, so that a model exported once runs with weights trained later. Field numbers are
those of onnx.proto3 (ONNX 1.18, IR version 10).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError

_GRAPH, _INITIALISER, _NAME, _RAW_DATA = 7, 5, 8, 9  # of ModelProto, of GraphProto, and twice of TensorProto
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # wire types of protocol buffers


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``[begin, end)`` of a file."""

    begin: int
    end: int


def with_weights(model: bytes, weights: Mapping[str, npt.NDArray[Any]]) -> bytearray:
    """Return an ONNX file with the values of some initialisers replaced.

    Args:
        model: Content of the file.
        weights: New values by the initialiser's name, of its shape and type.

    Raises:
        BundleError: The file has no such initialiser as raw bytes, or one of another size.
    """
    ranges = initialisers(model)
    content = bytearray(model)
    for name, value in weights.items():
        place, packed = ranges.get(name), np.ascontiguousarray(value).tobytes()
        if place is None or place.end - place.begin != len(packed):
            actual = "it has none" if place is None else f"there are {place.end - place.begin}"
            raise BundleError(f"the model must hold {len(packed)} bytes of {name}, but {actual}: export again")
        content[place.begin : place.end] = packed
    return content


def initialisers(model: bytes) -> dict[str, ByteRange]:
    """Return the bytes of each initialiser's values; one whose values are not raw bytes is left out.

    Raises:
        BundleError: The file is not an ONNX model.
    """
    ranges: dict[str, ByteRange] = {}
    for graph in _fields(model, ByteRange(0, len(model)), _GRAPH):
        for tensor in _fields(model, graph, _INITIALISER):
            names, data = list(_fields(model, tensor, _NAME)), list(_fields(model, tensor, _RAW_DATA))
            if names and data:
                ranges[model[names[0].begin : names[0].end].decode()] = data[0]
    return ranges


def _fields(content: bytes, message: ByteRange, number: int) -> Iterator[ByteRange]:
    """Yield the bytes of a message's fields of one number that have a length."""
    at = message.begin
    while at < message.end:
        key, at = _varint(content, at)
        kind, size = key & 7, {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(key & 7, 0)
        if kind == _VARINT:
            _, at = _varint(content, at)
        elif kind == _LENGTH:
            size, at = _varint(content, at)
            if key >> 3 == number:
                yield ByteRange(at, at + size)
        elif not size:
            raise BundleError("the model file is not ONNX: export again")
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, and the position after it."""
    value = shift = 0
    while at < len(content):
        byte = content[at]
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:  # noqa: PLR2004 - the top bit is set where more bytes follow
            return value, at
    raise BundleError("the model file ends too early: export again")
