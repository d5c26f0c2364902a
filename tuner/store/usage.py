"""Who uses a store: any number of processes together, or one alone that takes away what the others rely on.

The marks are locks of the kernel: they end with the process, however it ends. Windows has none such, and there no run
uses a store.
"""

import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tuner.errors import StoreError

if sys.platform != "win32":
    import fcntl

FILE = "users"
#: A command that only looks at the store is over by then; a run is not.
PATIENCE_SECONDS = 2.0
#: A process holds the lock of the store for one change; one that holds it for so long is stopped.
CHANGE_SECONDS = 60.0
_POLL_SECONDS = 0.005


class Usage:
    """A mark that this process uses a store, until `close` or for as long as this object lives.

    Where the folder cannot be written, nothing can be taken away, and there is no mark.

    Raises:
        StoreError: Another process is deleting from the store.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._descriptor = folder, -1
        if sys.platform == "win32":
            return
        try:
            self._descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return
        self._end = weakref.finalize(self, os.close, self._descriptor)
        if not self._lock(fcntl.LOCK_SH):
            raise StoreError(f"{folder} is being deleted from by another process: wait until that is done")

    def close(self) -> None:
        """Take the mark away."""
        if self._descriptor >= 0:
            self._end()
            self._descriptor = -1

    @contextmanager
    def alone(self, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
        """Keep every other process from using the store; wait so many seconds for others.

        Raises:
            StoreError: One uses it: what is deleted would be computed and stored again.
        """
        if self._descriptor >= 0 and not self._lock(fcntl.LOCK_EX, patience):
            self._lock(fcntl.LOCK_SH)  # the kernel drops the lock that there was, also where it refuses another kind
            raise StoreError(
                f"{self._folder} is in use by a run, which would store again what is deleted: "
                "wait for it, or stop it (--resume continues it)"
            )
        try:
            yield
        finally:
            if self._descriptor >= 0:
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def _lock(self, kind: int, patience: float = PATIENCE_SECONDS) -> bool:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(_POLL_SECONDS)
            except OSError:  # a file system without such locks
                return True
            else:
                return True


class StoreLock(FileLock):
    """The lock around every change to a store; a process that holds it and does not continue is reported."""

    def acquire(self, *arguments: Any, **named: Any) -> Any:
        """Take the lock; a `StoreError` if another process has held it for too long."""
        try:
            return super().acquire(*arguments, **named)
        except Timeout:
            raise StoreError(
                f"{self.lock_file} has been locked by another process for {CHANGE_SECONDS:.0f} s: is it stopped? "
                "Let it continue or end it, or give another --store"
            ) from None


def store_lock(folder: Path) -> StoreLock:
    """Return the lock of a store in a folder."""
    return StoreLock(folder / "lock", mode=0o600, poll_interval=_POLL_SECONDS, timeout=CHANGE_SECONDS)
