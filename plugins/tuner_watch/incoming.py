"""Files that come to a watched bundle: in a folder that people or programs put files into, or as a list of paths."""

import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tuner.errors import TaskError, TunerError
from tuner.files import write_private
from tuner.reading import text_from, walk

if TYPE_CHECKING:
    from inotify_simple import INotify

#: A file that nothing was written to for so long counts as whole.
SETTLED_SECONDS = 1.0
#: Time between two looks at a folder where the kernel cannot say that something changed.
POLL_SECONDS = 10.0
#: Bytes of the hash by which a file is known, and how many files are known that are not there any more.
MARK_BYTES, MOST_GONE = 16, 200_000


@dataclass(frozen=True, slots=True, order=True)
class IncomingFile:
    """A file to predict; files are ordered by their time of arrival.

    Attributes:
        changed_ns: Change time of the file, which copying does not preserve as it does the date.
        path: Path of the file.
        label: Name of the class folder that it is in, at any depth; None where it is in none.
        place: Path below the watched folder; `size` is that of the file.
    """

    changed_ns: int
    path: Path
    label: str | None = None
    place: str = ""
    size: int = 0

    @property
    def mark(self) -> bytes:
        """Identity of the file with its current content: a hash of its place, size and change."""
        text = f"{self.place}\0{self.size}\0{self.changed_ns}"
        return hashlib.blake2b(text.encode(), digest_size=MARK_BYTES).digest()


class PredictedFiles:
    """Which files were predicted, whatever their dates say; kept in a file of hashes.

    Args:
        file: The file, private to the user. A kill leaves at most a part of the last hash in it, which is dropped.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        content = b""
        with suppress(OSError):
            content = file.read_bytes()
        ends = range(MARK_BYTES, len(content) + 1, MARK_BYTES)
        self._marks = dict.fromkeys(content[end - MARK_BYTES : end] for end in ends)

    def __contains__(self, file: IncomingFile) -> bool:
        return file.mark in self._marks

    def keep(self, files: Iterable[IncomingFile]) -> None:
        """Forget the oldest files that are not there any more, where there are many: a disk may come back."""
        there = dict.fromkeys(file.mark for file in files if file in self)
        gone = [mark for mark in self._marks if mark not in there]
        self._marks = dict.fromkeys([*gone[-MOST_GONE:], *there])
        with suppress(OSError, TunerError):  # of a full disk: what is not noted is predicted once more
            write_private(self._file, b"".join(self._marks))

    def add(self, file: IncomingFile) -> None:
        """Note that a file was predicted."""
        self._marks[file.mark] = None
        with suppress(OSError):  # the same
            end = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(end, file.mark)
            finally:
                os.close(end)


def folders_in(folder: Path) -> list[Path]:
    """Return a folder and all folders below it that are not hidden.

    Raises:
        TaskError: The folder does not exist or cannot be read.
    """
    return [above for above, _ in _walk(folder)]


def files_in(
    folder: Path, suffixes: frozenset[str], refused: Callable[[OSError], object] | None = None
) -> tuple[list[IncomingFile], list[Path]]:
    """Return the files of a folder and of the class folders in it, at any depth, in the order of their arrival.

    Args:
        folder: Folder of files without a label, and of class folders, whose names are the labels of their files.
        suffixes: Endings of files that count, in lower case.
        refused: Called for a folder below that cannot be read.

    Returns:
        The files that count, and the paths of the others.

    Raises:
        TaskError: The folder does not exist or cannot be read.
    """
    files, others = list[IncomingFile](), list[Path]()
    for above, paths in _walk(folder, refused):
        inside = above.relative_to(folder)
        label = inside.parts[0] if inside.parts else None
        for path in paths:
            status = _status(path)
            if status is None and not os.path.lexists(path):
                continue  # it went away since the folder was listed
            if path.suffix.lower() not in suffixes or status is None:
                others.append(path)
                continue
            place = text_from(inside / path.name)
            files.append(IncomingFile(_changed_ns(status), path, label, place, status.st_size))
    return sorted(files), others


def files_from_lines(lines: Iterable[str]) -> Iterator[IncomingFile]:
    """Yield a file for each line of a stream: a path, or a path, a tab and a label."""
    for line in lines:
        path, _, label = line.rstrip("\n").partition("\t")
        if path:
            yield IncomingFile(0, Path(path), label or None)


def seconds_until_settled(file: IncomingFile, now_ns: int) -> float:
    """Return how long to wait until a file counts as whole, as nothing was written to it lately; 0 for one that does.

    Where the time of day is before the file's change, the clock was set, and the file counts as whole.
    """
    age = (now_ns - file.changed_ns) / 1e9
    return SETTLED_SECONDS - age if 0 <= age < SETTLED_SECONDS else 0.0


def _walk(folder: Path, refused: Callable[[OSError], object] | None = None) -> Iterator[tuple[Path, list[Path]]]:
    def refuse(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise TaskError(f"--samples {folder} cannot be read ({error.strerror}): give a folder of files") from None
        if refused is not None and error.errno not in {errno.ENOENT, errno.ENOTDIR}:  # it was removed meanwhile
            refused(error)

    return walk(folder, refuse)


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file; None where it was removed after it was listed, or is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _changed_ns(status: os.stat_result) -> int:
    """Return when a file was changed; Windows keeps when it was made and when it was written: the later of both."""
    return max(status.st_ctime_ns, status.st_mtime_ns) if sys.platform == "win32" else status.st_ctime_ns


class Arrivals:
    """Waits until something may have changed in folders, as the kernel says (inotify); a context manager.

    Without the library, where the kernel has no watches left, or on a file system that reports no events, waiting ends
    after `POLL_SECONDS` or as the caller asks.
    """

    def __init__(self) -> None:
        self._events: INotify | None = None
        with suppress(ModuleNotFoundError, OSError):
            import inotify_simple

            self._events = inotify_simple.INotify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
