"""A folder of record files under one cap: listed, cleared, and evicted to make room."""

import os
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.arrays import Floats
from tuner.errors import BudgetError, StoreError
from tuner.files import PART, cache_folder, own_folder, private_folder
from tuner.reading import read_bytes
from tuner.store.files import header
from tuner.store.files.disk import COST, StoreFull, read_cost
from tuner.store.files.header import DamagedHeaderError, StoreKey
from tuner.store.files.index import ENTRY_BYTES, MOST_INDEX_BYTES
from tuner.store.files.records import HEADER, RecordFile
from tuner.store.files.slots import DATA, INDEX
from tuner.store.usage import FILE as USERS
from tuner.store.usage import Usage, store_lock
from tuner.units import format_bytes
from tuner.untrusted import reason_of, require_plain

#: The order in which an eviction removes the files.
FILES = (INDEX, DATA, COST, HEADER)
#: Folder of what exits begin with (`tuner.store.kept`).
STARTS = "starts"
#: Other names in the folder of a store.
STORED = frozenset({"lock", USERS, "kinds", "scales", STARTS})
_NAME_DIGITS = 32


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One record file, as `tuner store list` shows it.

    Attributes:
        key: What the records are; None if the header is damaged or of another format.
        bytes: Size on disk, everything counted.
        last_used: Seconds since the epoch.
        seconds_per_record: Time to compute a record again; None if it was never noted.
    """

    path: Path
    key: StoreKey | None
    records: int
    bytes: int
    last_used: float
    seconds_per_record: float | None

    @property
    def seconds_per_byte(self) -> float:
        """Time that a byte of this file saves; 0 where it is unknown or nothing is stored."""
        return (self.seconds_per_record or 0.0) * self.records / self.bytes if self.bytes else 0.0


class Store:
    """Record files in one folder. Every change to any of them happens under one lock, so that the cap holds.

    Attributes:
        folder: Folder of the store, of mode 0700.
        cap_bytes: Largest size of all files together, at every moment; None for no cap.
        in_use: Folders of files in use, which are never evicted.
        lock: Lock held around every change to any file of the store.

    Raises:
        StoreError: Another process is deleting from the store, see `alone`.
    """

    def __init__(self, folder: Path, cap_bytes: int | None = None, opened: float | None = None) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True, mode=0o700)
        self.folder = folder
        self.cap_bytes = cap_bytes
        self._opened = time.time() if opened is None else opened
        self.in_use: set[Path] = set()
        self.lock, self._usage = store_lock(folder), Usage(folder)
        if not self.room(0):
            raise StoreFull(f"{folder} cannot be reduced to {cap_bytes} bytes: give more --storage")

    def __reduce__(self) -> tuple[type["Store"], tuple[Path, int | None, float]]:
        """Pickle the folder, the cap, and since when it is used, and open the store anew elsewhere."""
        return Store, (self.folder, self.cap_bytes, self._opened)

    @property
    def nbytes(self) -> int:
        """Size of everything in the folder."""
        return disk_bytes(self.folder)

    def file(
        self,
        key: StoreKey,
        low: Floats | None = None,
        high: Floats | None = None,
        seconds_per_record: float | None = None,
    ) -> RecordFile:
        """Open the record file of a key, or make it; arguments and errors as for `RecordFile.create_or_open`."""
        file = RecordFile.create_or_open(self.path(key), key, low, high, guard=self)
        if seconds_per_record is not None:
            file.note(seconds_per_record)
        return file

    def path(self, key: StoreKey) -> Path:
        """Return the folder of a key's record file, whether or not it exists."""
        return self.folder / key.digest()[:_NAME_DIGITS]

    def list(self) -> Sequence[StoredFile]:
        """Return every record file, in the order of eviction: those not used since the store was opened come first."""
        files = [_describe(path) for path in self._folders()]
        # so go the features of networks and sizes that an earlier run tried, and this one left
        return sorted(
            files,
            key=lambda file: (file.last_used >= self._opened, file.seconds_per_byte, file.last_used, file.path),
        )

    def close(self) -> None:
        """Let others delete from the store: this process does not use it any longer."""
        self._usage.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other process from using the store; see `Usage.alone`."""
        with self._usage.alone():
            yield

    def clear(self) -> int:
        """Delete every record file; return the bytes freed."""
        with self.lock:
            return sum(_evict(path) for path in self._folders())

    def evict(self, path: Path) -> int:
        """Delete one record file; return the bytes freed."""
        with self.lock:
            return _evict(path)

    def room(self, bytes_needed: int, keep: Collection[Path] = ()) -> bool:
        """Evict whole files, in the order of `list`, until so many bytes fit under the cap.

        What exits begin with goes last, the oldest first. Folders to `keep` are not evicted, as those in `in_use`.

        Returns:
            False if they cannot fit; then files are evicted only as far as the store exceeds its cap already.
        """
        if self.cap_bytes is None:
            return True
        with self.lock:
            stored_bytes = self.nbytes
            if stored_bytes + bytes_needed <= self.cap_bytes:
                return True
            protected = {*keep, *self.in_use}
            files = [file for file in self.list() if file.path not in protected]
            starts = {path: path.lstat() for path in (self.folder / STARTS).glob("*")}
            evictable = sum(file.bytes for file in files) + sum(status.st_size for status in starts.values())
            fits = stored_bytes - evictable + bytes_needed <= self.cap_bytes
            excess = stored_bytes - self.cap_bytes + (bytes_needed if fits else 0)
            for file in files:
                if excess <= 0:
                    break
                excess -= _evict(file.path)
            for path, status in sorted(starts.items(), key=lambda one: one[1].st_mtime):
                if excess <= 0:
                    break
                path.unlink()
                excess -= status.st_size
            return fits

    def admit(self, bytes_needed: int, folder: Path) -> None:
        """Make room for bytes in the file at `folder`, which itself stays."""
        if not self.room(bytes_needed, {folder}):
            allowed = format_bytes(self.cap_bytes or 0)
            raise StoreFull(f"the features do not fit into the {allowed} of the store: give more --storage")

    def _folders(self) -> Iterator[Path]:
        """Yield the record files' folders alone: a folder that the user has chosen may hold other things."""
        for path in self.folder.iterdir():
            if len(path.name) == _NAME_DIGITS and path.is_dir() and any((path / name).exists() for name in FILES):
                yield path


def _describe(path: Path) -> StoredFile:
    try:
        stored = header.read(path / HEADER)
    except (DamagedHeaderError, StoreError):
        stored = None
    try:
        last_used = (path / HEADER).stat().st_mtime
        index = np.frombuffer(read_bytes(path / INDEX, MOST_INDEX_BYTES), np.uint8)
    except OSError:
        last_used, index = 0.0, np.zeros(0, np.uint8)
    rows = index[: len(index) // ENTRY_BYTES * ENTRY_BYTES].reshape(-1, ENTRY_BYTES)
    return StoredFile(
        path=path,
        key=stored.key if stored else None,
        records=int(rows.any(axis=1).sum()),
        bytes=disk_bytes(path),
        last_used=last_used,
        seconds_per_record=read_cost(path),
    )


def _evict(path: Path) -> int:
    """Delete a record file, the index first. Cutting a file short frees its bytes even where a process has it open."""
    freed = 0
    files = [path / name for name in FILES]
    for file in [*files, *path.glob(f"{HEADER}.*{PART}")]:
        with suppress(FileNotFoundError):
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:  # else it is somebody else's file, too
                freed += status.st_size
                os.truncate(file, 0)
            file.unlink()
    with suppress(OSError):  # the folder holds something that is not the store's
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


def open_store(folder: Path | None = None, cap_bytes: int | None = None, limit: str = "") -> Store:
    """Open the feature store in a folder, the user's own by default; `limit` is where the cap comes from.

    Raises:
        StoreError: The folder cannot be used, is another user's, or holds links.
        BudgetError: The cap is less than what cannot be evicted.
    """
    folder = own_folder(private_folder(folder or cache_folder() / "store", StoreError, STORED))
    try:
        require_plain(folder)
        return Store(folder, cap_bytes)
    except StoreFull:
        raise BudgetError(f"{limit} is less than the files in {folder} that are not features: give more") from None
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be used as the feature store ({reason_of(error)}): give another folder"
        ) from None
