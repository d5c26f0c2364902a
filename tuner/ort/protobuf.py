"""Messages of protocol buffers by their bytes: a device has neither their library nor the onnx package."""

from collections.abc import Iterator
from typing import NamedTuple

from tuner.errors import BundleError

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # wire types
_VARINT_BITS = 64
_SEVEN_BITS, _CONTINUES = 127, 128
#: A message: the number of each field, and its value: a whole number, or bytes.
Message = list[tuple[int, int | bytes]]


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
        value |= (byte & _SEVEN_BITS) << shift
        shift += 7
        at += 1
        if byte < _CONTINUES:
            return value, at
    raise BundleError("the model file ends too early: export again")


def integers(content: bytes, value: int | ByteRange) -> list[int]:
    """Return the number of a field, or its packed ones; those from 2^63 on are negative."""
    numbers, at = ([value], 0) if isinstance(value, int) else (list[int](), value.begin)
    while not isinstance(value, int) and at < value.end:
        number, at = varint(content, at, value.end)
        numbers.append(number)
    return [number - 2**64 if number >= 2**63 else number for number in numbers]


def ranges(content: bytes, message: ByteRange, wanted: int) -> list[ByteRange]:
    """Return the bytes of a message's fields of one number that have a length."""
    return [value for number, value in fields(content, message) if number == wanted and isinstance(value, ByteRange)]


def parsed(content: bytes, message: ByteRange | None = None) -> Message:
    """Return the fields of a message, by default all of `content`; errors as of `fields`."""
    whole = fields(content, message or ByteRange(0, len(content)))
    return [(number, one if isinstance(one, int) else content[one.begin : one.end]) for number, one in whole]


def joined(parts: Message) -> bytes:
    """Return the bytes of a message's fields."""
    return b"".join(integer(at, one) if isinstance(one, int) else field(at, one) for at, one in parts)


def parts_of(parts: Message, number: int) -> list[bytes]:
    """Return the values of a message's fields of one number that have a length."""
    return [value for own, value in parts if own == number and isinstance(value, bytes)]


def texts(content: bytes, number: int) -> list[str]:
    """Return the texts in a message's fields of one number."""
    return [value.decode() for value in parts_of(parsed(content), number)]


def field(number: int, content: bytes) -> bytes:
    """Return a field of a message whose value has a length: text, bytes, or a message itself."""
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def integer(number: int, value: int) -> bytes:
    """Return a field of a message that is a whole number, at least 0."""
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > _SEVEN_BITS:
        groups.append(value & _SEVEN_BITS | (_SEVEN_BITS + 1))
        value >>= 7
    return bytes((*groups, value))
