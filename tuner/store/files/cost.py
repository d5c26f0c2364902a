"""What one record of a file costs to compute again, noted next to the records for eviction and admission."""

import os
import struct
import zlib
from pathlib import Path

from tuner.reading import read_bytes
from tuner.store.files.disk import full_disk_as_store_full, write_at

FILE = "cost"
_COST = struct.Struct("<dI")  # seconds, crc32 of them
COST_BYTES = _COST.size


def read_cost(folder: Path) -> float | None:
    """Return the seconds that one record of the file in `folder` takes to compute; None if never noted, or damaged."""
    try:
        seconds, checksum = _COST.unpack(read_bytes(folder / FILE, COST_BYTES))
    except (OSError, struct.error):
        return None
    return float(seconds) if checksum == _checksum(seconds) else None


def write_cost(folder: Path, seconds: float) -> None:
    """Note the seconds that one record takes, in place: the cap leaves no room for two. Under the store's lock.

    Raises:
        StoreFull: The disk leaves no room for it.
    """
    with full_disk_as_store_full(folder):
        descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            write_at(descriptor, _COST.pack(seconds, _checksum(seconds)), 0)
        finally:
            os.close(descriptor)


def _checksum(seconds: float) -> int:
    return zlib.crc32(struct.pack("<d", seconds))
