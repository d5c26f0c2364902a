"""A call in a forked child: under a deadline, a limit of memory and a watch over a folder that nothing may touch."""

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

#: Exit codes of a child that broke a rule of its own; the command line's are 0, 1, 2 and 130.
TRACEBACK, TOUCHED = 70, 71
#: Audit events whose paths are watched.
WATCHED = ("open", "os.", "shutil.", "glob.", "tempfile.")
ONE_LINE, ACCEPTED = "one line", "accepted"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended.

    Attributes:
        kind: ``one line``, ``accepted``, ``traceback``, ``hang``, ``killed``, ``outside`` or ``many lines``.
        line: Last line that it printed on stderr.
        seconds: Wall time.
        peak_bytes: Most resident memory, that of the warmed process included.
        output: What it printed on stdout.
        errors: What it printed on stderr.
        code: Its exit code; that of a signal is negative.
    """

    kind: str
    line: str
    seconds: float
    peak_bytes: int
    output: str = ""
    errors: str = ""
    code: int = 0


def confined(
    action: Callable[[], int], canary: Path | None = None, seconds: float = 20.0, most_bytes: int = 4 * 10**9
) -> Outcome:
    """Call in a forked child.

    Args:
        action: Returns an exit code as the command line does: 0 done, 1 a mistake told in one line.
        canary: Folder that nothing may touch.
        seconds: Time after which the child counts as hanging; what it started ends with it.
        most_bytes: Bytes of data that the child may have.
    """
    before, began = _content(canary), time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _run(action, canary, most_bytes, out.fileno(), err.fileno())
        status, usage, hangs = _wait(child, began + seconds)
        output, errors = map(_text, (out, err))
    kind = _kind(status, errors, hangs=hangs, touched=_content(canary) != before)
    last, code = (errors.strip().splitlines() or [""])[-1], os.waitstatus_to_exitcode(status)
    return Outcome(kind, last, time.monotonic() - began, usage * 1024, output, errors, code)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _run(action: Callable[[], int], canary: Path | None, most_bytes: int, out: int, err: int) -> NoReturn:
    """Be the child."""
    code = TRACEBACK
    try:
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(file, number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        touched = _touched(canary)
        code = action()
        if touched:
            print(f"touched: {touched[0]}", file=sys.stderr)
            code = TOUCHED
    except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
        traceback.print_exc()
        code = TRACEBACK
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _touched(canary: Path | None) -> Sequence[str]:
    """Watch over a folder; return a list that grows by what touches it."""
    found: list[str] = []
    if canary is None:
        return found
    inside = os.path.realpath(canary)

    def watch(event: str, arguments: Sequence[Any]) -> None:
        if event.startswith(WATCHED):
            for argument in arguments[:2]:
                if isinstance(argument, str | bytes | os.PathLike):
                    with suppress(OSError, ValueError):
                        path = os.path.realpath(os.fsdecode(argument))
                        if path == inside or path.startswith(inside + os.sep):
                            found.append(f"{event} {path}")

    sys.addaudithook(watch)
    return found


def _wait(child: int, end: float) -> tuple[int, int, bool]:
    """Return the child's status, its peak in KiB, and whether it had to be killed."""
    hangs, done, status, usage = False, 0, 0, None
    while not done and not hangs:
        done, status, usage = os.wait4(child, os.WNOHANG)
        hangs = not done and time.monotonic() > end
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also what it started and did not end
    if hangs:
        _, status, usage = os.wait4(child, 0)
    return status, usage.ru_maxrss if usage else 0, hangs


def _kind(status: int, errors: str, *, hangs: bool, touched: bool) -> str:
    code = os.waitstatus_to_exitcode(status)
    if touched or code == TOUCHED:
        return "outside"
    if hangs:
        return "hang"
    if code < 0:
        return f"killed by signal {-code}"
    if code == TRACEBACK or "\nTraceback" in f"\n{errors}":
        return "traceback"
    if code == 0:
        return ACCEPTED
    lines = errors.strip().splitlines()
    return ONE_LINE if len(lines) == 1 and lines[0].isprintable() else "many lines"


def _content(folder: Path | None) -> dict[str, tuple[int, int, bytes]]:
    """Return what would show a change of a folder: modes, times and contents."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*") if folder else ())
        if folder
    }
