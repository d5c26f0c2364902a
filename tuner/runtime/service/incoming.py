"""Files that come to a watched bundle: in a folder that people or programs put files into, or as a list of paths."""

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tuner.errors import TaskError, TunerError
from tuner.files import write_private
from tuner.reading import is_hidden, text_from

if TYPE_CHECKING:
    from inotify_simple import INotify

#: A file that nothing was written to for so long counts as whole.
SETTLED_SECONDS = 1.0
#: Time between two looks at a folder where the kernel cannot say that something changed.
POLL_SECONDS = 10.0
#: Bytes of the hash by which a file is known.
MARK_BYTES = 16


@dataclass(frozen=True, slots=True, order=True)
class IncomingFile:
    """A file to predict; files are ordered by their time of arrival.

    Attributes:
        changed_ns: Change time of the file, which copying does not preserve as it does the date.
        path: Path of the file.
        label: Name of the class folder that it is in; None where it is in none.
    """

    changed_ns: int
    path: Path
    label: str | None = None

    @property
    def mark(self) -> bytes:
        """Identity of the file with its current content: a hash of its class folder, its name and its change."""
        text = f"{self.label or ''}/{text_from(self.path.name)}\0{self.changed_ns}"
        return hashlib.blake2b(text.encode(), digest_size=MARK_BYTES).digest()


class PredictedFiles:
    """Which files were predicted, whatever their dates say; kept in a file of hashes.

    Args:
        file: The file, private to the user. A kill leaves at most a part of the last hash in it, which is dropped.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            content = b""
        self._marks = {content[at : at + MARK_BYTES] for at in range(0, len(content) - MARK_BYTES + 1, MARK_BYTES)}

    def __contains__(self, file: IncomingFile) -> bool:
        return file.mark in self._marks

    def keep(self, files: Iterable[IncomingFile]) -> None:
        """Forget the files that are not there any more."""
        self._marks &= {file.mark for file in files}
        with suppress(OSError, TunerError):  # of a full disk: what is not noted is predicted once more
            write_private(self._file, b"".join(self._marks))

    def add(self, file: IncomingFile) -> None:
        """Note that a file was predicted."""
        self._marks.add(file.mark)
        with suppress(OSError):  # the same
            end = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(end, file.mark)
            finally:
                os.close(end)


def class_folders(folder: Path) -> list[Path]:
    """Return the class folders in a folder, sorted.

    Raises:
        TaskError: The folder does not exist or cannot be read.
    """
    return [path for path in _listed(folder) if path.is_dir() and not is_hidden(path)]


def files_in(folder: Path, suffixes: frozenset[str]) -> list[IncomingFile]:
    """Return the files of a folder and of the class folders in it, in the order of their arrival.

    Args:
        folder: Folder of files without a label, and of class folders, whose names are the labels of their files.
        suffixes: Endings of files that count, in lower case.

    Raises:
        TaskError: The folder does not exist or cannot be read.
    """
    labelled: list[tuple[Path, str | None]] = [(path, None) for path in _listed(folder)]
    labelled += [(path, class_.name) for class_ in class_folders(folder) for path in _inside(class_)]
    return sorted(_stamped((path, label) for path, label in labelled if path.suffix.lower() in suffixes))


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


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise TaskError(f"--samples {folder} cannot be read ({error.strerror}): give a folder of files") from None


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # the folder was removed after it was listed
        return []


def _stamped(labelled: Iterable[tuple[Path, str | None]]) -> Iterator[IncomingFile]:
    for path, label in labelled:
        if is_hidden(path):
            continue
        try:
            yield IncomingFile(_changed_ns(path.stat()), path, label)
        except OSError:  # the file was removed after it was listed
            continue


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
