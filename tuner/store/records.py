"""One file of fixed-size records, safe against kills at any byte, flipped bits, and a second process.

A folder holds `header` (the key and the scales), `data` (record `i` at `i * record_bytes`), `index` (see `index.py`)
and `cost`. Data is written and flushed before its index entries, everything under a lock.

Records are read with positioned reads, not through a memory map: the file's pages then never count as this process's
memory, whose high-water mark is a promise to the user, and a file that another process evicts or cuts short is a bad
record rather than a bus error. It costs 2 µs a record.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from filelock import BaseFileLock, FileLock

from tuner.errors import StoreError
from tuner.store import header
from tuner.store.codec import Bytes, Codec, Floats
from tuner.store.header import DamagedHeaderError, Header, StoreFull, StoreKey
from tuner.store.index import ENTRY_BYTES, Index

__all__ = ["FILES", "BadRecord", "Guard", "RecordFile", "StoreFull", "StoreKey", "read_cost"]

_COST = struct.Struct("<dI")  # seconds to compute one record again, crc32 of them
_BATCH = 256
_SAMPLE_DIGITS = 32
FILES = ("index", "data", "cost", "header.draft", "header")  # the order in which an eviction removes them


class BadRecord(StoreError):  # noqa: N818 - named for what it carries
    """Records that are not what was written; they have been dropped, and are to be computed again.

    Attributes:
        sample_ids: Whose records.
    """

    def __init__(self, sample_ids: Sequence[str]) -> None:
        super().__init__(f"{len(sample_ids)} stored records are missing or damaged; they will be computed again")
        self.sample_ids = tuple(sample_ids)


class Guard(Protocol):
    """Who keeps a cap over several files: a `Store`."""

    @property
    def lock(self) -> BaseFileLock:
        """Held around every change to any of the files."""

    def admit(self, bytes_needed: int, folder: Path) -> None:
        """Make room for bytes in the file at `folder`, or raise `StoreFull`."""


class RecordFile:
    """Records of one key. Make one with `create_or_open`; close it, or use it as a context manager."""

    def __init__(self, folder: Path, key: StoreKey, codec: Codec, guard: Guard | None = None) -> None:
        self._data = self._entries = -1
        self.folder, self.key, self.codec = folder, key, codec
        self._guard = guard
        self._lock = guard.lock if guard else FileLock(folder.with_name(f"{folder.name}.lock"), mode=0o600)
        self._seen: tuple[int, ...] = ()
        self._notices: list[str] = []
        self._index = Index(key.digest().encode())

    @classmethod
    def create_or_open(
        cls,
        folder: Path,
        key: StoreKey,
        low: Floats | None = None,
        high: Floats | None = None,
        guard: Guard | None = None,
    ) -> "RecordFile":
        """Open the record file in `folder`, or make an empty one there.

        Args:
            folder: Of this file alone.
            key: What the records are; every field must be the file's own.
            low: float32 `[C]` scales at 8 bits and less; not needed to open a file that exists.
            high: float32 `[C]`, likewise.
            guard: Keeps the cap; without one there is none.

        Raises:
            StoreError: The folder holds records of another key, or the scales are not the key's.
            StoreFull: Not even the header fits.
        """
        if low is None and high is None and key.scales:
            with suppress(DamagedHeaderError):  # told, and cleared away, when the file is opened below
                held = header.read(folder / "header")
                if held is not None:
                    held.refuse_other(key, folder)
                    low, high = held.codec.low, held.codec.high
        codec = Codec(key.bits, key.shape, low, high)
        if codec.scales != key.scales:
            raise StoreError(f"the scales given are not those that the key of cut {key.cut!r} names")
        file = cls(folder, key, codec, guard)
        with file._locked():
            return file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, sample_id: str) -> bool:
        self._refresh()
        return self._index.find(_binary(sample_id)) is not None

    @property
    def nbytes(self) -> int:
        """Bytes of data and index on disk."""
        return sum(_size(self.folder / name) for name in ("data", "index"))

    def missing(self, sample_ids: Iterable[str]) -> list[str]:
        """Which of the samples have no record, in the order given."""
        self._refresh()
        return [sample_id for sample_id in sample_ids if self._index.find(_binary(sample_id)) is None]

    def sample_ids(self) -> list[str]:
        """Every sample with a record, sorted."""
        self._refresh()
        return [sample.hex() for sample in self._index.samples()]

    def take_notices(self) -> list[str]:
        """What was found damaged since the last call, a sentence each, for the user."""
        notices, self._notices = self._notices, []
        return notices

    def append(self, sample_ids: Sequence[str], records: Bytes) -> None:
        """Add records; samples that have one are skipped.

        Args:
            sample_ids: `n` ids of 32 hex digits.
            records: uint8 `[n, record_bytes]`.

        Raises:
            StoreFull: The cap or the disk leaves no room; the file holds what it held before.
        """
        if records.dtype != np.uint8 or records.shape != (len(sample_ids), self.codec.record_bytes):
            raise StoreError(f"records are uint8 [{len(sample_ids)}, {self.codec.record_bytes}], not {records.shape}")
        rows = dict(zip(map(_binary, sample_ids), np.ascontiguousarray(records), strict=True))
        with self._locked():
            samples = [sample for sample in rows if self._index.find(sample) is None]
            if samples:
                self._admit(len(samples))
                self._store(samples, np.stack([rows[sample] for sample in samples]))

    def read(self, sample_ids: Sequence[str], out: Bytes | None = None) -> Bytes:
        """Read and check records.

        Args:
            sample_ids: `n` ids; one may come more than once.
            out: uint8 `[n, record_bytes]`, contiguous, to be filled; a new array without it.

        Returns:
            uint8 `[n, record_bytes]`.

        Raises:
            BadRecord: Some records are missing or damaged. They have been dropped.
        """
        if out is None:
            out = np.empty((len(sample_ids), self.codec.record_bytes), np.uint8)
        elif (
            out.shape != (len(sample_ids), self.codec.record_bytes)
            or out.dtype != np.uint8
            or not out.flags.c_contiguous
        ):
            raise StoreError(f"out is a contiguous uint8 array [{len(sample_ids)}, {self.codec.record_bytes}]")
        if self._data < 0:
            self._refresh()
        samples = [_binary(sample_id) for sample_id in sample_ids]
        bad = self._read_into(out, samples, range(len(samples)))
        if bad:  # another process may have moved them
            with self._locked():
                bad = self._read_into(out, samples, bad)
                if bad:
                    self._drop({samples[row] for row in bad})
            if bad:
                raise BadRecord(list(dict.fromkeys(sample_ids[row] for row in bad)))
        return out

    def forget(self, sample_ids: Iterable[str]) -> int:
        """Remove samples and overwrite their records with zeros; return how many there were."""
        with self._locked():
            slots = self._drop({_binary(sample_id) for sample_id in sample_ids})
            for slot in slots:
                header.write_at(self._data, bytes(self.codec.record_bytes), slot * self.codec.record_bytes)
            os.fdatasync(self._data)
            os.fdatasync(self._entries)
        return len(slots)

    def digest(self) -> str:
        """Hash over sorted (sample id, record); says whether two fillings gave the same."""
        total = hashlib.sha256()
        sample_ids = self.sample_ids()
        for start in range(0, len(sample_ids), _BATCH):
            batch = sample_ids[start : start + _BATCH]
            for sample_id, record in zip(batch, self.read(batch), strict=True):
                total.update(_binary(sample_id) + record.tobytes())
        return total.hexdigest()

    def note(self, seconds_per_record: float) -> None:
        """Keep what one record costs to compute again; eviction and admission ask for it.

        Raises:
            StoreFull: The disk leaves no room for it.
        """
        packed = struct.pack("<d", seconds_per_record)
        with self._locked(), header.full_disk_told(self.folder):
            descriptor = os.open(self.folder / "cost", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                header.write_at(descriptor, packed + zlib.crc32(packed).to_bytes(4, "little"), 0)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Let go of the files; the next use opens them again."""
        for descriptor in (self._data, self._entries):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._entries = -1
        self._seen = ()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, with the files open and the index as it is on disk."""
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock:
            if self._stamp() != self._seen:
                self._synchronise()
            yield

    def _refresh(self) -> None:
        if self._stamp() != self._seen:
            with self._locked():
                pass

    def _stamp(self) -> tuple[int, ...] | None:
        """Changes when another process appends to the index, drops from it, or evicts the file."""
        try:
            held = (self.folder / "index").stat()
        except FileNotFoundError:
            return None
        return held.st_ino, held.st_size, held.st_mtime_ns

    def _synchronise(self) -> None:
        """Open what is closed or was replaced, take over the index, cut torn tails off."""
        stamp = self._stamp()
        if self._data < 0 or stamp is None or stamp[0] != os.fstat(self._entries).st_ino:
            self.close()
            try:
                with header.full_disk_told(self.folder):
                    self._open()
            except BaseException:
                self.close()
                raise
        damaged = self._index.reload(self._entries)
        if damaged:
            self._notices.append(f"{damaged} index entries of {self.folder} were damaged; their records are dropped")
        self._trim()
        self._seen = self._stamp() or ()

    def _open(self) -> None:
        self.folder.mkdir(exist_ok=True, mode=0o700)
        path = self.folder / "header"
        try:
            held = header.read(path)
        except DamagedHeaderError as error:
            self._notices.append(f"{error}; the records beside it are dropped")
            held = None
        if held is not None:
            held.refuse_other(self.key, self.folder)
        self._index = Index(self.key.digest().encode())
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if held is None else 0)
        self._data, self._entries = (os.open(self.folder / name, flags, 0o600) for name in ("data", "index"))
        if held is None:
            content = Header(self.key, self.codec).pack()
            if self._guard:
                self._guard.admit(len(content) + _COST.size, self.folder)
            header.write(path, content)
        header.sign(path)  # last used: the oldest goes first among equals

    def _admit(self, count: int) -> None:
        """Ask for the bytes that `count` more records will add."""
        if not self._guard:
            return
        added = max(0, count - self._index.free)
        data = (self._index.slots + added) * self.codec.record_bytes
        self._guard.admit(max(0, data - os.fstat(self._data).st_size) + added * ENTRY_BYTES, self.folder)

    def _store(self, samples: Sequence[bytes], records: Bytes) -> None:
        size = self.codec.record_bytes
        slots = self._index.allot(len(samples))
        checksums = [self._index.checksum(sample, record.data) for sample, record in zip(samples, records, strict=True)]
        try:
            with header.full_disk_told(self.folder):
                for first, last in _runs(slots):
                    header.write_at(self._data, records[first:last].data, slots[first] * size)
                os.fdatasync(self._data)
                self._index.put(self._entries, slots, samples, checksums)
        except BaseException:  # even an interrupt: what was half written is cut off again
            self._index.reload(self._entries)
            self._trim()
            raise
        finally:
            self._changed()

    def _trim(self) -> None:
        """Cut off what no index entry stands for."""
        for descriptor, size in ((self._entries, ENTRY_BYTES), (self._data, self.codec.record_bytes)):
            if os.fstat(descriptor).st_size > self._index.slots * size:
                os.ftruncate(descriptor, self._index.slots * size)

    def _drop(self, samples: Iterable[bytes]) -> list[int]:
        slots = self._index.drop(self._entries, samples)
        self._changed()
        return slots

    def _changed(self) -> None:
        """Let other processes see that the index is not what they hold; this one holds it."""
        header.sign(self._entries)
        self._seen = self._stamp() or ()

    def _read_into(self, out: Bytes, samples: Sequence[bytes], rows: Sequence[int]) -> list[int]:
        """Fill rows of `out`; return the rows whose records are missing or damaged."""
        size = self.codec.record_bytes
        places = {row: place for row in rows if (place := self._index.find(samples[row])) is not None}
        found = list(places)
        whole: set[int] = set()  # what the file does not hold must not pass because memory still does
        for first, last in _runs([places[row].slot for row in found], found):
            lines = out[found[first] : found[last - 1] + 1]
            got = header.read_at(self._data, lines.data.cast("B"), places[found[first]].slot * size)
            whole.update(found[first : first + got // size])
        return [
            row
            for row in rows
            if row not in whole or self._index.checksum(samples[row], out[row].data) != places[row].checksum
        ]


def read_cost(folder: Path) -> float | None:
    """Seconds that one record of the file in `folder` takes to compute; `None` if never noted, or damaged."""
    try:
        seconds, checksum = _COST.unpack((folder / "cost").read_bytes())
    except (FileNotFoundError, struct.error):
        return None
    return float(seconds) if checksum == zlib.crc32(struct.pack("<d", seconds)) else None


def _runs(*lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Stretches `[first, last)` over which every line counts up by one."""
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


def _binary(sample_id: str) -> bytes:
    try:
        sample = bytes.fromhex(sample_id)
    except ValueError:
        sample = b""
    if len(sample) * 2 != len(sample_id) or len(sample_id) != _SAMPLE_DIGITS:
        raise StoreError(f"a sample id has {_SAMPLE_DIGITS} hex digits, unlike {sample_id!r}")
    return sample
