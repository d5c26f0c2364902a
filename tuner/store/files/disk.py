"""Bytes of the store's files, a full disk as an error of the store, and what a record costs to compute again."""

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import StoreError
from tuner.reading import read_bytes

#: Next to the records: what one of them costs to compute again, for eviction and admission.
COST = "cost"
_COST = struct.Struct("<dI")  # seconds, crc32 of them
COST_BYTES = _COST.size


class StoreFull(StoreError):  # noqa: N818 - a state the caller answers by recomputing, named for it
    """The bytes do not fit: under the cap, or on the disk."""


@contextmanager
def full_disk_as_store_full(folder: Path) -> Iterator[None]:
    """Turn the system's errors for a full disk into `StoreFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise StoreFull(f"the disk under {folder} is full: free some space") from error
        raise


def write_at(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Write every byte: one call may write fewer than asked."""
    rest = memoryview(content).cast("B")
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def read_at(descriptor: int, into: memoryview, offset: int) -> int:
    """Fill `into` as far as the file reaches; return the number of bytes read."""
    rest = into
    while rest and (count := os.preadv(descriptor, [rest], offset)):
        rest, offset = rest[count:], offset + count
    return len(into) - len(rest)


def read_cost(folder: Path) -> float | None:
    """Return the seconds that one record of the file in `folder` takes to compute; None if never noted, or damaged."""
    try:
        seconds, checksum = _COST.unpack(read_bytes(folder / COST, COST_BYTES))
    except (OSError, struct.error):
        return None
    return float(seconds) if checksum == _checksum(seconds) else None


def write_cost(folder: Path, seconds: float) -> None:
    """Note the seconds that one record takes, in place: the cap leaves no room for two. Under the store's lock."""
    with full_disk_as_store_full(folder):
        descriptor = os.open(folder / COST, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            write_at(descriptor, _COST.pack(seconds, _checksum(seconds)), 0)
        finally:
            os.close(descriptor)


def _checksum(seconds: float) -> int:
    return zlib.crc32(struct.pack("<d", seconds))
