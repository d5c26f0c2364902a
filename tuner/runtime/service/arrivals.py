"""Waiting for files without looking at the clock: the kernel says when something changes in a folder (inotify)."""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from inotify_simple import INotify

#: Time between two looks at a folder where the kernel cannot say that something changed.
POLL_SECONDS = 10.0


class Arrivals:
    """Waits until something may have changed in folders; a context manager.

    Without the library, where the kernel has no watches left, or on a file system that reports no events, waiting ends
    after `POLL_SECONDS` or as the caller asks.

    Attributes:
        wakes: Whether changes end the waiting; else time does.
    """

    def __init__(self) -> None:
        self._events: INotify | None = None
        with suppress(ModuleNotFoundError, OSError):
            import inotify_simple

            self._events = inotify_simple.INotify()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def wakes(self) -> bool:
        """Whether changes end the waiting; else time does."""
        return self._events is not None

    def follow(self, folders: Iterable[Path]) -> None:
        """Follow folders in addition to those that are followed; to be called before they are listed.

        Args:
            folders: What changes in these ends the waiting, but not what changes deeper.
        """
        if self._events is None:
            return
        from inotify_simple import flags

        changes = flags.CREATE | flags.CLOSE_WRITE | flags.MOVED_TO | flags.DELETE_SELF | flags.MOVE_SELF
        for folder in folders:
            try:
                self._events.add_watch(folder, changes | flags.ONLYDIR)  # the same folder again is no second watch
            except (FileNotFoundError, NotADirectoryError):  # it was removed, or is none: listing it says so
                continue
            except OSError:  # the user's watches are used up, or this file system has none
                self._close()
                return

    def wait(self, seconds: float) -> None:
        """Wait for a change; at most some seconds, and at most `POLL_SECONDS` where changes are not reported.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        if self._events is None:
            time.sleep(min(seconds, POLL_SECONDS))
        else:
            self._events.read(timeout=round(1000 * seconds))

    def _close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
