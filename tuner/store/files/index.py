"""Index of a data file: the sample in each slot, one 24-byte entry per slot, each with a checksum of its own.

An entry is written after its record's data, so that an intact entry stands for a complete record. An entry whose
checksum fails stands for nothing, and its slot is used again. The checksums start from the file's key: an index copied
from another file has no valid entry.
"""

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tuner.store.files.disk import write_at

ENTRY_BYTES = 24  # sample id (16), crc32 of the record, crc32 of this entry
MOST_INDEX_BYTES = 2**30
_CHECKED = 20
_EMPTY = bytes(ENTRY_BYTES)


class Place(NamedTuple):
    """Slot of a record in the data file, and its checksum."""

    slot: int
    checksum: int


class Index:
    """A file's entries, mirrored in memory; the caller holds the lock around everything that touches the file.

    Attributes:
        places: Where each sample's record is.
        free: Slots that hold nothing.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = zlib.crc32(salt)
        self._rows: npt.NDArray[np.uint8] = np.zeros((0, ENTRY_BYTES), np.uint8)
        self.places: dict[bytes, Place] = {}
        self.free: set[int] = set()

    @property
    def slots(self) -> int:
        """Number of slots in the file, used or free."""
        return len(self._rows)

    def checksum(self, sample: bytes, record: memoryview) -> int:
        """Return a checksum that ties a record to its sample and its file."""
        return zlib.crc32(record, zlib.crc32(sample, self._salt))

    def reload(self, descriptor: int) -> int:
        """Take over the entries of the file; return the number of damaged ones, which are emptied in the file."""
        size = os.fstat(descriptor).st_size
        if size > MOST_INDEX_BYTES:  # nobody has as many samples: it is none of ours
            os.ftruncate(descriptor, size := 0)
        content = os.pread(descriptor, size, 0)
        rows = np.frombuffer(content, np.uint8, len(content) // ENTRY_BYTES * ENTRY_BYTES).reshape(-1, ENTRY_BYTES)
        shared = min(len(rows), len(self._rows))
        changed = np.flatnonzero((rows[:shared] != self._rows[:shared]).any(axis=1)).tolist()
        removed = range(shared, len(self._rows))
        for slot in [*changed, *removed]:
            self._remove(slot)
        self._rows = rows.copy()
        damaged = [slot for slot in [*changed, *range(shared, len(rows))] if not self._enter(slot)]
        for slot in damaged:
            write_at(descriptor, _EMPTY, slot * ENTRY_BYTES)
            self._rows[slot] = 0
        return len(damaged)

    def allot(self, count: int) -> list[int]:
        """Return slots for new records: free ones first, then new ones at the end."""
        free = sorted(self.free)[:count]
        return free + list(range(self.slots, self.slots + count - len(free)))

    def put(self, descriptor: int, slots: Sequence[int], samples: Sequence[bytes], checksums: Sequence[int]) -> None:
        """Write entries for slots from `allot`, whose records are in the data file already."""
        entries = {
            slot: self._entry(sample, checksum, slot)
            for slot, sample, checksum in zip(slots, samples, checksums, strict=True)
        }
        new = b"".join(entries[slot] for slot in sorted(entries) if slot >= self.slots)
        for slot, entry in entries.items():
            if slot < self.slots:
                write_at(descriptor, entry, slot * ENTRY_BYTES)
        write_at(descriptor, new, self.slots * ENTRY_BYTES)
        rows = np.frombuffer(new, np.uint8).reshape(-1, ENTRY_BYTES)
        self._rows = np.concatenate([self._rows, rows])
        for slot, entry in entries.items():
            self._rows[slot] = np.frombuffer(entry, np.uint8)
            self._enter(slot)

    def drop(self, descriptor: int, samples: Iterable[bytes]) -> list[int]:
        """Empty the entries of samples; return their slots."""
        slots = [self.places[sample].slot for sample in samples if sample in self.places]
        for slot in slots:
            write_at(descriptor, _EMPTY, slot * ENTRY_BYTES)
            self._remove(slot)
            self._rows[slot] = 0
            self.free.add(slot)
        return slots

    def _entry(self, sample: bytes, checksum: int, slot: int) -> bytes:
        front = sample + checksum.to_bytes(4, "little")
        return front + zlib.crc32(slot.to_bytes(8, "little"), zlib.crc32(front, self._salt)).to_bytes(4, "little")

    def _enter(self, slot: int) -> bool:
        """Mirror a slot's entry; return False if it is damaged."""
        entry: bytes = self._rows[slot].tobytes()
        sample, checksum = entry[:16], int.from_bytes(entry[16:_CHECKED], "little")
        if entry != _EMPTY and entry == self._entry(sample, checksum, slot):
            self.places[sample] = Place(slot, checksum)
            self.free.discard(slot)
            return True
        self.free.add(slot)
        return entry == _EMPTY

    def _remove(self, slot: int) -> None:
        """Remove a slot's entry from the mirror."""
        self.free.discard(slot)
        sample = self._rows[slot, :16].tobytes()
        if (place := self.places.get(sample)) is not None and place.slot == slot:
            del self.places[sample]
