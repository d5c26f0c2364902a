"""A folder of record files under one cap: `tuner store list`, `tuner store clear`, and room for what comes next."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from tuner.errors import StoreError
from tuner.store import header
from tuner.store.codec import Floats
from tuner.store.header import DamagedHeaderError, StoreKey
from tuner.store.index import ENTRY_BYTES
from tuner.store.records import FILES, RecordFile, StoreFull, read_cost

_NAME_DIGITS = 32
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One record file, as `tuner store list` shows it.

    Attributes:
        path: Its folder.
        key: What the records are; `None` if the header is damaged or of another format.
        records: How many there are.
        bytes: On disk, everything counted.
        last_used: Seconds since the epoch.
        seconds_per_record: What computing one again takes; `None` if it was never noted.
    """

    path: Path
    key: StoreKey | None
    records: int
    bytes: int
    last_used: float
    seconds_per_record: float | None

    @property
    def seconds_per_byte(self) -> float:
        """Time that a byte of this file saves; 0 where it is not known or there is nothing to save."""
        return (self.seconds_per_record or 0.0) * self.records / self.bytes if self.bytes else 0.0


class Store:
    """Record files in one folder. Every change to any of them happens under one lock, so that the cap holds.

    Attributes:
        folder: Made with mode 0700.
        cap_bytes: All files together stay at or under it, at every moment; may be set anew at any time, and then holds
            from the next change or `room` on. `None`: no cap.
        kept: Folders of files in use, which are never evicted.
    """

    def __init__(self, folder: Path, cap_bytes: int | None = None) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True, mode=0o700)
        self.folder = folder
        self.cap_bytes = cap_bytes
        self.kept: set[Path] = set()
        self._lock = FileLock(folder / "lock", mode=0o600, poll_interval=_POLL_SECONDS)
        if not self.room(0):
            raise StoreFull(f"{folder} cannot be brought under {cap_bytes} bytes")

    def __reduce__(self) -> tuple[type["Store"], tuple[Path, int | None]]:
        """Cross to another process as the folder and the cap."""
        return Store, (self.folder, self.cap_bytes)

    @property
    def lock(self) -> FileLock:
        """Held around every change to any file of the store."""
        return self._lock

    @property
    def nbytes(self) -> int:
        """Bytes of everything in the folder."""
        return disk_bytes(self.folder)

    def file(
        self,
        key: StoreKey,
        low: Floats | None = None,
        high: Floats | None = None,
        seconds_per_record: float | None = None,
    ) -> RecordFile:
        """Open the record file of a key, or make it.

        Args:
            key: What the records are.
            low: float32 `[C]` scales at 8 bits and less; not needed for a file that exists.
            high: float32 `[C]`, likewise.
            seconds_per_record: What computing one record takes, if measured; `RecordFile.note` may tell it later.

        Raises:
            StoreError: The scales are not those the key names.
            StoreFull: Not even the header fits under the cap.
        """
        file = RecordFile.create_or_open(self.path(key), key, low, high, guard=self)
        if seconds_per_record is not None:
            file.note(seconds_per_record)
        return file

    def path(self, key: StoreKey) -> Path:
        """Where the record file of a key lies, whether or not it exists."""
        return self.folder / key.digest()[:_NAME_DIGITS]

    def list(self) -> Sequence[StoredFile]:
        """Every record file, the one that an eviction takes first at the front."""
        files = [_describe(path) for path in self._folders()]
        return sorted(files, key=lambda file: (file.seconds_per_byte, file.last_used, file.path))

    def clear(self) -> int:
        """Delete every record file; return the bytes that were freed."""
        with self._lock:
            return sum(_evict(path) for path in self._folders())

    def evict(self, path: Path) -> int:
        """Delete one record file; return the bytes that were freed."""
        with self._lock:
            return _evict(path)

    def room(self, bytes_needed: int, keep: Collection[Path] = ()) -> bool:
        """Evict whole files, the one that saves least time per byte first, until so many bytes fit under the cap.

        Args:
            bytes_needed: About to be written.
            keep: Folders not to be evicted, beside those in `kept`.

        Returns:
            False if they cannot fit; then nothing is evicted, except what already was over the cap.
        """
        if self.cap_bytes is None:
            return True
        with self._lock:
            held = self.nbytes
            if held + bytes_needed <= self.cap_bytes:
                return True
            safe = {*keep, *self.kept}
            files = [file for file in self.list() if file.path not in safe]
            fits = held - sum(file.bytes for file in files) + bytes_needed <= self.cap_bytes
            excess = held - self.cap_bytes + (bytes_needed if fits else 0)
            for file in files:
                if excess <= 0:
                    break
                excess -= _evict(file.path)
            return fits

    def admit(self, bytes_needed: int, folder: Path) -> None:
        """Make room for bytes in the file at `folder`, which itself stays.

        Raises:
            StoreFull: They cannot fit.
        """
        if not self.room(bytes_needed, {folder}):
            raise StoreFull(f"{bytes_needed} more bytes do not fit under the {self.cap_bytes} the store may hold")

    def _folders(self) -> Iterator[Path]:
        """Only what this module made: a folder the user pointed at may hold other things."""
        for path in self.folder.iterdir():
            if len(path.name) == _NAME_DIGITS and path.is_dir() and any((path / name).exists() for name in FILES):
                yield path


def _describe(path: Path) -> StoredFile:
    try:
        held = header.read(path / "header")
    except (DamagedHeaderError, StoreError):
        held = None
    try:
        last_used = (path / "header").stat().st_mtime
        index = np.frombuffer((path / "index").read_bytes(), np.uint8)
    except FileNotFoundError:
        last_used, index = 0.0, np.zeros(0, np.uint8)
    rows = index[: len(index) // ENTRY_BYTES * ENTRY_BYTES].reshape(-1, ENTRY_BYTES)
    return StoredFile(
        path=path,
        key=held.key if held else None,
        records=int(rows.any(axis=1).sum()),
        bytes=disk_bytes(path),
        last_used=last_used,
        seconds_per_record=read_cost(path),
    )


def _evict(path: Path) -> int:
    """Delete a record file, the index first. Cutting a file short frees its bytes even where a process has it open."""
    freed = 0
    for name in FILES:
        part = path / name
        if part.exists():
            freed += part.stat().st_size
            os.truncate(part, 0)
            part.unlink()
    with suppress(OSError):  # something that is not ours lies in it
        path.rmdir()
    return freed


def disk_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another process has just removed it
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - on the path of every append
    return total
