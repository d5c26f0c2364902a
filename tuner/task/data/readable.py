"""Which of a task's files can be read: looked at whole before anything trains, once for each content.

Files that were found readable are remembered by path, size and dates, as hashes, in the user's cache. The next look at
them is one question to the file system.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

from tuner.errors import StoreError, TaskError
from tuner.files import cache_folder, write_private
from tuner.machine.control_group import usable_processors
from tuner.reading import kinds_of, text_from

T = TypeVar("T")
FILE = "readable"
HASH_BYTES = 16
#: Hashes that are remembered; with more files the oldest are looked at again.
MOST_HASHES = 200_000
#: Seconds between two reports of how many files were looked at.
REPORT_SECONDS = 0.5
#: Files that a message names.
MOST_NAMED = 5


class FileCheck:
    """Finds the files of a task that cannot be read, so that all of them are reported at once.

    Args:
        skip: Whether such files are left out of the task; otherwise `close` raises an error that names them.
        settings: What else decides whether a file can be used, as text: a file is remembered for these settings only.
        looks: Whether files are looked at; else all count as readable until they are read.

    Attributes:
        hear: Called with the number of files of an entry that were looked at, and of all of them: set by the process
            that opens a task for somebody who waits.
    """

    hear: ClassVar[Callable[[int, int], object]] = staticmethod(lambda _done, _of: None)

    def __init__(self, *, skip: bool, settings: str, looks: bool) -> None:
        self._unreadable: dict[str, str] = {}  # in the order of the task, and why
        self._skip, self._settings, self._looks = skip, settings, looks
        self._new: dict[bytes, None] = {}
        self.findings: list[str] = []  # lines on the files of entries, for a person

    def readable(self, files: Sequence[Path], look: Callable[[Path], object]) -> list[bool]:
        """Return whether each file can be read; `look`, called by several threads, raises a `TaskError` if not."""
        if not self._looks:
            return [True] * len(files)
        marks = [self._mark(file) for file in files]
        unseen = {mark: file for mark, file in zip(marks, files, strict=True) if mark not in self._remembered}
        with ThreadPoolExecutor(usable_processors()) as pool:
            found = pool.map(lambda file: _problem(file, look), unseen.values())
            reasons = dict(zip(unseen, self._heard(found, len(unseen)), strict=True))
        self._new.update({mark: None for mark, reason in reasons.items() if not reason})
        for mark, file in zip(marks, files, strict=True):
            if reasons.get(mark):
                self._unreadable[text_from(file)] = reasons[mark]
        return [not reasons.get(mark) for mark in marks]

    def _heard(self, problems: Iterable[str], of: int) -> Iterator[str]:
        """Yield what looking at each file found, and report now and then how many were looked at."""
        due = time.monotonic() + REPORT_SECONDS
        for done, problem in enumerate(problems, 1):
            if time.monotonic() >= due:
                type(self).hear(done, of)
                due = time.monotonic() + REPORT_SECONDS
            yield problem

    @cached_property
    def _remembered(self) -> dict[bytes, None]:
        try:
            content = (cache_folder() / FILE).read_bytes()
        except (OSError, StoreError):
            return {}
        return dict.fromkeys(content[at : at + HASH_BYTES] for at in range(0, len(content), HASH_BYTES))

    def note(self, file: Path, error: TaskError) -> None:
        """Count a file as unreadable, whose reading raised an error."""
        self._unreadable[text_from(file)] = _reason(file, error)

    def count(self, place: Path, files: Sequence[Path], others: Sequence[Path]) -> None:
        """Note of which kinds the files of an entry are, if of several, and the others, which do not count."""
        if len({file.suffix.lower() for file in files}) > 1:
            self._find(f"note: {text_from(place)}: files of several kinds are read: {kinds_of(files)}")
        if others:
            what = "1 file is" if len(others) == 1 else f"{len(others):,} files are"
            self._find(
                f"warning: {text_from(place)}: {what} left out, of no kind that is read or in no class folder: "
                f"{kinds_of(others)}"
            )

    def _find(self, line: str) -> None:
        if line not in self.findings:  # several entries may choose from one folder
            self.findings.append(line)

    def close(self, task: Path) -> tuple[str, ...]:
        """Remember what was found, and return the files that are left out, each with the reason.

        Raises:
            TaskError: There are such files, and the task does not leave them out.
        """
        if self._new:
            with suppress(OSError, StoreError):  # without a cache, the files are looked at again
                hashes = [*self._remembered, *self._new][-MOST_HASHES:]
                write_private(cache_folder() / FILE, b"".join(hashes), durable=False)
        if self._unreadable and not self._skip:
            raise self.error(task)
        return self._lines()

    def error(self, task: Path | str) -> TaskError:
        """Return the error that names the files, the first few of many."""
        count = len(self._unreadable)
        return TaskError(
            f"{task}: {count} {'file' if count == 1 else 'files'} cannot be used: {by_reason(self._lines())}; "
            "replace or remove them, or set [input] skip_unreadable = true"
        )

    def _lines(self) -> tuple[str, ...]:
        return tuple(f"{file}: {reason}" for file, reason in self._unreadable.items())

    def _mark(self, file: Path) -> bytes:
        try:
            status = file.stat()
            state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        except OSError:  # the look says why
            state = (0, 0, 0, 0)
        content = os.fsencode(file) + f"\0{state}\0{self._settings}".encode()
        return hashlib.blake2b(content, digest_size=HASH_BYTES).digest()


def left_out(skipped: Sequence[str]) -> str:
    """Return the warning that files are left out of a task; empty for none."""
    what = "1 file of the task is" if len(skipped) == 1 else f"{len(skipped)} files of the task are"
    return f"warning: {what} left out: {by_reason(skipped)}" if skipped else ""


def changed(notes: Sequence[str]) -> str:
    """Return the note that files of a task are not used as they are; empty for none."""
    what = "1 file is" if len(notes) == 1 else f"{len(notes)} files are"
    return f"note: {what} not used as recorded: {by_reason(notes)}" if notes else ""


def by_reason(lines: Sequence[str]) -> str:
    """Return the first few files that share each reason, and how many more there are; of ``"FILE: REASON"`` each."""
    files: dict[str, list[str]] = {}
    for line in lines:
        file, _, reason = line.partition(": ")
        files.setdefault(reason, []).append(file)
    lines = [f"{_some(names)}: {reason}" for reason, names in files.items()]
    more = len(lines) - MOST_NAMED
    return "; ".join((*lines[:MOST_NAMED], *([f"and {more} more reasons"] if more > 0 else ())))


def _some(names: Sequence[str]) -> str:
    few = MOST_NAMED if len(names) <= MOST_NAMED else 2
    return ", ".join(names[:few]) + (f" and {len(names) - few:,} more" if len(names) > few else "")


def kept(values: Sequence[T], keep: Sequence[bool]) -> list[T]:
    """Return the values whose place is to be kept."""
    return [value for value, stays in zip(values, keep, strict=True) if stays]


def forget_readable() -> None:
    """Forget which files were found readable."""
    (cache_folder() / FILE).unlink(missing_ok=True)


def _problem(file: Path, look: Callable[[Path], object]) -> str:
    try:
        look(file)
    except TaskError as error:
        return _reason(file, error)
    return ""


def _reason(file: Path, error: TaskError) -> str:
    """Return an error's rule and value, without the file before them and the way out behind."""
    text = text_from(str(error)).removeprefix(f"{text_from(file)}: ")
    return text.rpartition(": ")[0] or text
