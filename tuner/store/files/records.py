"""One file of fixed-size records, safe against kills at any byte, flipped bits, and a second process.

A folder holds `header` (the key and the scales), `data` and `index` (see `slots.py`), and `cost`. Everything that
changes any of them happens under a lock.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from filelock import BaseFileLock, FileLock

from tuner.arrays import Codes, Floats
from tuner.errors import StoreError
from tuner.files import mark_changed, remove_parts
from tuner.store.codec import Codec
from tuner.store.files import header
from tuner.store.files.disk import COST_BYTES, full_disk_as_store_full, write_cost
from tuner.store.files.header import DamagedHeaderError, Header, StoreKey
from tuner.store.files.slots import SlotFile
from tuner.untrusted import reason_of, require_plain

HEADER = "header"
_BATCH = 256
_SAMPLE_DIGITS = 32


class BadRecord(StoreError):  # noqa: N818 - named for what it carries
    """Records of these samples are not what was written: they were dropped, and are to be computed again."""

    def __init__(self, sample_ids: Sequence[str]) -> None:
        super().__init__(f"{len(sample_ids)} stored records are missing or damaged; they will be computed again")
        self.sample_ids = tuple(sample_ids)


class Guard(Protocol):
    """Enforces a cap over several files: a `Store`."""

    @property
    def lock(self) -> BaseFileLock:
        """Lock held around every change to any of the files."""

    def admit(self, bytes_needed: int, folder: Path) -> None:
        """Make room for bytes in the file at `folder`, or raise `StoreFull`."""


class RecordFile:
    """Records of one key. Make one with `create_or_open`; close it, or use it as a context manager.

    Attributes:
        folder: Folder of this file alone.
        key: What the records are.
        codec: Codec with the file's scales.
    """

    def __init__(self, folder: Path, key: StoreKey, codec: Codec, guard: Guard | None = None) -> None:
        self.folder, self.key, self.codec = folder, key, codec
        self._guard = guard
        self._lock = guard.lock if guard else FileLock(folder.with_name(f"{folder.name}.lock"), mode=0o600)
        self._notices: list[str] = []
        self._slots = SlotFile(folder, codec.record_bytes, key.digest().encode())

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
            folder: Folder of this file alone.
            key: What the records are; every field must be the file's own.
            low: float32 `[C]` scales at 8 bits and less, as `high`; not needed to open an existing file.
            high: Their upper ends.
            guard: Enforces the cap; without one there is none.

        Raises:
            StoreError: The folder holds records of another key, or the scales are not the key's.
            StoreFull: Not even the header fits.
        """
        if low is None and high is None and key.scales:
            with suppress(DamagedHeaderError):  # reported, and cleared away, when the file is opened below
                stored = header.read(folder / HEADER)
                if stored is not None:
                    stored.refuse_other(key, folder)
                    low, high = stored.codec.low, stored.codec.high
        codec = Codec(key.bits, key.shape, low, high, key.per_sample)
        if codec.scales != key.scales:
            raise StoreError(f"the scales given are not those that the key of cut {key.cut!r} names")
        file = cls(folder, key, codec, guard)
        with file._locked():
            return file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._slots.index.places)

    def __contains__(self, sample_id: str) -> bool:
        self._refresh()
        return _binary(sample_id) in self._slots.index.places

    @property
    def nbytes(self) -> int:
        """Size of data and index on disk."""
        return self._slots.nbytes

    def missing(self, sample_ids: Iterable[str]) -> list[str]:
        """Return the samples that have no record, in the order given."""
        self._refresh()
        return [sample_id for sample_id in sample_ids if _binary(sample_id) not in self._slots.index.places]

    def sample_ids(self) -> list[str]:
        """Return every sample with a record, sorted."""
        self._refresh()
        return [sample.hex() for sample in sorted(self._slots.index.places)]

    def take_notices(self) -> list[str]:
        """Return the damage noticed since the last call, a sentence each, for the user."""
        notices, self._notices = self._notices, []
        return notices

    def append(self, sample_ids: Sequence[str], records: Codes) -> None:
        """Add records, uint8 `[n, record_bytes]`; samples that have one are skipped.

        Raises:
            StoreFull: The cap or the disk leaves no room; the file holds what it held before.
        """
        if records.dtype != np.uint8 or records.shape != (len(sample_ids), self.codec.record_bytes):
            raise StoreError(
                f"records are uint8 [{len(sample_ids)}, {self.codec.record_bytes}], "
                f"got {records.dtype} {list(records.shape)}"
            )
        rows = dict(zip(map(_binary, sample_ids), np.ascontiguousarray(records), strict=True))
        with self._locked():
            samples = [sample for sample in rows if sample not in self._slots.index.places]
            if samples:
                if self._guard:
                    self._guard.admit(self._slots.growth(len(samples)), self.folder)
                self._slots.append(samples, np.stack([rows[sample] for sample in samples]))

    def read(self, sample_ids: Sequence[str], out: Codes | None = None) -> Codes:
        """Read and check records; return uint8 `[n, record_bytes]`, which is `out` where it is given.

        Raises:
            BadRecord: Some records are missing or damaged. They have been dropped.
        """
        shape = (len(sample_ids), self.codec.record_bytes)
        if out is None:
            out = np.empty(shape, np.uint8)
        elif out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise StoreError(f"out is a contiguous uint8 array {list(shape)}, got {out.dtype} {list(out.shape)}")
        if not self._slots.is_open:
            self._refresh()
        samples = [_binary(sample_id) for sample_id in sample_ids]
        bad = self._slots.read(out, samples, range(len(samples)))
        if bad:  # another process may have moved them
            with self._locked():
                bad = self._slots.read(out, samples, bad)
                if bad:
                    self._slots.drop({samples[row] for row in bad})
            if bad:
                raise BadRecord(list(dict.fromkeys(sample_ids[row] for row in bad)))
        return out

    def forget(self, sample_ids: Iterable[str]) -> int:
        """Overwrite the records of samples, and all free slots, with zeros; return how many records there were."""
        with self._locked():
            remove_parts(self.folder / HEADER)
            return self._slots.erase(map(_binary, sample_ids))

    def digest(self) -> str:
        """Return a hash over sorted (sample id, record): equal where two fillings gave the same."""
        total = hashlib.sha256()
        sample_ids = self.sample_ids()
        for start in range(0, len(sample_ids), _BATCH):
            batch = sample_ids[start : start + _BATCH]
            for sample_id, record in zip(batch, self.read(batch), strict=True):
                total.update(_binary(sample_id) + record.tobytes())
        return total.hexdigest()

    def note(self, seconds_per_record: float) -> None:
        """Write down what one record costs to compute again; eviction and admission read it."""
        with self._locked():
            write_cost(self.folder, seconds_per_record)

    def close(self) -> None:
        """Close the files; the next use opens them again."""
        self._slots.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, with the files open and the index as it is on disk."""
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock:
            if not self._slots.is_current:
                self._synchronise()
            yield

    def _refresh(self) -> None:
        if not self._slots.is_current:
            with self._locked():
                pass

    def _synchronise(self) -> None:
        """Open what is closed or was replaced, and take over the index."""
        if self._slots.is_replaced:
            self.close()
            try:
                with full_disk_as_store_full(self.folder):
                    self._open()
            except BaseException:
                self.close()
                raise
        damaged = self._slots.reload()
        if damaged:
            self._notices.append(f"{damaged} index entries of {self.folder} were damaged; their records are dropped")

    def _open(self) -> None:
        self.folder.mkdir(exist_ok=True, mode=0o700)
        try:
            require_plain(self.folder)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be used ({reason_of(error)}): remove it") from None
        path = self.folder / HEADER
        try:
            stored = header.read(path)
        except DamagedHeaderError as error:
            self._notices.append(f"{error}; the records that belong to it are dropped")
            stored = None
        if stored is not None:
            stored.refuse_other(self.key, self.folder)
        self._slots.open(empty=stored is None)
        if stored is None:
            new = Header(self.key, self.codec)
            if self._guard:
                self._guard.admit(len(new.pack()) + COST_BYTES, self.folder)
            header.write(path, new)
        mark_changed(path)  # last used: the oldest goes first among equals


def _binary(sample_id: str) -> bytes:
    try:
        sample = bytes.fromhex(sample_id)
    except ValueError:
        sample = b""
    if len(sample) * 2 != len(sample_id) or len(sample_id) != _SAMPLE_DIGITS:
        raise StoreError(f"a sample id must have {_SAMPLE_DIGITS} hex digits, got {sample_id!r}")
    return sample
