"""Bytes of the store's files: reads and writes at a position, and a full disk as an error of the store."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import StoreError


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
