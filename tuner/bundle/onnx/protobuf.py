"""Protocol buffers by their bytes: a device has no onnx package, and a library would allocate what a file declares."""

from collections.abc import Iterator
from typing import NamedTuple

from tuner.errors import BundleError

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # wire types
_VARINT_BITS = 64
_CONTINUES = 128


class ByteRange(NamedTuple):
    """Bytes ``[begin, end)`` of a file."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.begin


def fields(content: bytes, message: ByteRange) -> Iterator[tuple[int, int | ByteRange]]:
    """Yield the number of each of a message's fields, and its value: an integer, or where its bytes are.

    Args:
        content: The whole file, or a memory map of it.
        message: Where the message is in it.

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
    """Return a number of seven bits a byte, lowest first, and the position after it.

    Raises:
        BundleError: It does not end before `end`, or has more than 64 bits.
    """
    value = shift = 0
    while at < end and shift < _VARINT_BITS:
        byte = content[at]
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < _CONTINUES:
            return value, at
    raise BundleError("the model file ends too early: export again")
