"""Records of one size in the slots of a data file, with an index that says what each slot holds.

Data is written and flushed before its index entries. Records are read with positioned reads, not through a memory map:
the file's pages then never count as this process's memory, whose high-water mark is a promise to the user, and a file
that another process evicts or cuts short is a bad record rather than a bus error. It costs 2 µs a record.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tuner.arrays import Codes
from tuner.files import mark_changed
from tuner.store.files.disk import full_disk_as_store_full, read_at, write_at
from tuner.store.files.index import ENTRY_BYTES, Index

DATA, INDEX = "data", "index"


class SlotFile:
    """The data file and the index of a folder, opened and closed, and kept as other processes leave them.

    The caller holds the lock around every method that changes the files or takes changes over. `salt` ties checksums
    to this file; `index` has the entries as last read.
    """

    def __init__(self, folder: Path, record_bytes: int, salt: bytes) -> None:
        self._data = self._entries = -1
        self._folder, self._record_bytes, self._salt = folder, record_bytes, salt
        self._seen: tuple[int, ...] = ()
        self.index = Index(salt)

    def __del__(self) -> None:
        self.close()

    @property
    def nbytes(self) -> int:
        """Size of both files on disk."""
        return sum(_size(self._folder / name) for name in (DATA, INDEX))

    @property
    def is_open(self) -> bool:
        """Whether the files are open."""
        return self._data >= 0

    @property
    def is_current(self) -> bool:
        """Whether the index is as on disk: false when another process appended, dropped, or evicted the file."""
        return self._stamp() == self._seen

    @property
    def is_replaced(self) -> bool:
        """Whether the files have to be opened: they are closed, or others have taken their place."""
        stamp = self._stamp()
        return not self.is_open or stamp is None or stamp[0] != os.fstat(self._entries).st_ino

    def open(self, *, empty: bool) -> None:
        """Open the files, or make them; with `empty`, what they hold is dropped."""
        self.index = Index(self._salt)
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if empty else 0)
        self._data, self._entries = (os.open(self._folder / name, flags, 0o600) for name in (DATA, INDEX))

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._data, self._entries):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._entries = -1
        self._seen = ()

    def reload(self) -> int:
        """Take over the index as it is on disk, cut torn tails off; return the number of damaged entries."""
        damaged = self.index.reload(self._entries)
        self._trim()
        self._seen = self._stamp() or ()
        return damaged

    def growth(self, count: int) -> int:
        """Return the bytes that `count` more records will add."""
        added = max(0, count - len(self.index.free))
        data_bytes = (self.index.slots + added) * self._record_bytes
        return max(0, data_bytes - os.fstat(self._data).st_size) + added * ENTRY_BYTES

    def append(self, samples: Sequence[bytes], records: Codes) -> None:
        """Add records, uint8 `[n, record_bytes]`, of samples that have none; with a full disk nothing is added."""
        slots = self.index.allot(len(samples))
        checksums = [self.index.checksum(sample, record.data) for sample, record in zip(samples, records, strict=True)]
        try:
            with full_disk_as_store_full(self._folder):
                for first, last in _runs(slots):
                    write_at(self._data, records[first:last].data, slots[first] * self._record_bytes)
                os.fdatasync(self._data)
                self.index.put(self._entries, slots, samples, checksums)
        except BaseException:  # even an interrupt: what was half written is cut off again
            self.index.reload(self._entries)
            self._trim()
            raise
        finally:
            self._mark_changed()

    def drop(self, samples: Iterable[bytes]) -> int:
        """Empty the index entries of samples; return how many there were."""
        slots = self.index.drop(self._entries, samples)
        self._mark_changed()
        return len(slots)

    def erase(self, samples: Iterable[bytes]) -> int:
        """Overwrite the records of samples, and what is left in free slots, then drop them; return how many there were.

        In this order: whenever the process is killed, a record whose bytes are left has its entry, by which the next
        call finds it.
        """
        places = self.index.places
        found = {sample: places[sample].slot for sample in samples if sample in places}
        end = os.fstat(self._data).st_size
        for slot in (*found.values(), *sorted(self.index.free)):
            begin = slot * self._record_bytes
            write_at(self._data, bytes(max(0, min(self._record_bytes, end - begin))), begin)
        os.fdatasync(self._data)
        dropped = self.drop(found)
        os.fdatasync(self._entries)
        return dropped

    def read(self, out: Codes, samples: Sequence[bytes], rows: Sequence[int]) -> list[int]:
        """Read records into rows of `out`, uint8 `[n, record_bytes]`; return the rows that are missing or damaged."""
        places = {row: place for row in rows if (place := self.index.places.get(samples[row])) is not None}
        present = list(places)
        whole: set[int] = set()  # what the file does not hold must not pass because memory still does
        for first, last in _runs([places[row].slot for row in present], present):
            lines = out[present[first] : present[last - 1] + 1]
            count = read_at(self._data, lines.data.cast("B"), places[present[first]].slot * self._record_bytes)
            whole.update(present[first : first + count // self._record_bytes])
        return [
            row
            for row in rows
            if row not in whole or self.index.checksum(samples[row], out[row].data) != places[row].checksum
        ]

    def _stamp(self) -> tuple[int, ...] | None:
        """Return what differs after every change to the index, whoever made it; None where there is no index."""
        try:
            status = (self._folder / INDEX).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _trim(self) -> None:
        """Cut off what no index entry stands for."""
        for descriptor, size in ((self._entries, ENTRY_BYTES), (self._data, self._record_bytes)):
            if os.fstat(descriptor).st_size > self.index.slots * size:
                os.ftruncate(descriptor, self.index.slots * size)

    def _mark_changed(self) -> None:
        """Let other processes see that their copy of the index is out of date; this one's is not."""
        mark_changed(self._entries)
        self._seen = self._stamp() or ()


def _runs(*lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield stretches `[first, last)` over which every line counts up by one."""
    first, count = 0, len(lines[0])
    for last in range(1, count + 1):
        if last == count or any(line[last] != line[last - 1] + 1 for line in lines):
            yield first, last
            first = last


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
