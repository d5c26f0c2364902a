"""The last fence: a command that breaks a limit and does not answer is ended, in one line."""

import faulthandler
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from tuner.commands.limits import CommandLimits
from tuner.errors import LIMIT
from tuner.machine.awake import CLOCK

#: A command that ends by itself has ended by then: a share of its time, and seconds.
LATE_SHARE, LATE_SECONDS = 0.02, 0.75
POLL_SECONDS = 0.01
#: After a traceback, the process ends itself within this time, or says that it was asleep; else it is killed.
LATEST_SECONDS, SILENT_SECONDS = 0.3, 1
#: Reads the traceback of every thread, the main one last, and says where that one was. A shell starts at once.
_LAST_WORDS = f"""
trap '' INT TERM
while IFS= read -r line; do
  case $line in
    awake) [ -z "$killer" ] || kill -9 $killer 2>/dev/null; killer=; place=;;
    Timeout*) (sleep {SILENT_SECONDS}; kill -9 $PPID) </dev/null >/dev/null 2>&1 & killer=$!;;
    Thread*|Current*) first=1;;
    *File*) [ -n "$first" ] && place=$line; first=;;
  esac
done
[ -z "$killer" ] || kill -9 $killer 2>/dev/null
[ -z "$place" ] || echo "tuner: --time was over and the command did not answer, so it was ended in${{place# }} (what \
was finished is kept: tuner show shows a run, --resume continues it)" >&2
"""


@contextmanager
def ended_after(seconds: float | None, started: float) -> Iterator[None]:
    """End this process where a block takes longer than it may, whatever it does: also in code that holds the GIL.

    What ends by itself is left alone: it has 2 % and 0.75 s more. What was running is named in one line on stderr (on
    Windows by tracebacks). The exit code is 3, on Windows 1; where only a kill ends it, that of a kill. A time asleep
    does not count. Only a command line should end its process; a program that calls `tuner.run` should not.

    Args:
        seconds: Time that the block has; None for no limit.
        started: Clock (`tuner.machine.awake.CLOCK`) from which it counts.
    """
    if seconds is None:
        yield
        return
    end, stopped = started + (1 + LATE_SHARE) * seconds + LATE_SECONDS, CLOCK.stopped

    def begin() -> None:
        left = max(end - CLOCK.now(), POLL_SECONDS)
        faulthandler.dump_traceback_later(left, file=file, exit=sys.platform == "win32")

    def look() -> None:
        nonlocal stopped
        if CLOCK.now() > end + LATEST_SECONDS:
            os._exit(LIMIT)
        if CLOCK.stopped > stopped:  # the timer counts that time, and may be over
            stopped = CLOCK.stopped
            begin()
            _take_back(file)

    with _reader_of_tracebacks() as file:
        try:
            with CLOCK.watched(look):
                begin()
                yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            _take_back(file)


@contextmanager
def ended_by(end: float | None) -> Iterator[None]:
    """Do as `ended_after`, with a limit from now to a clock (`tuner.machine.awake.CLOCK`); None for no limit.

    SIGTERM ends the block as Ctrl-C does.
    """
    from tuner.commands.interruption import terminated_as_interrupted

    now = CLOCK.now()
    with terminated_as_interrupted(), ended_after(None if end is None else end - now, now):
        yield


@contextmanager
def guarded(what: str, limits: CommandLimits, leaving: Callable[[], str] = str) -> Iterator[None]:
    """End this process, in one line, where a block that works in it breaks a limit; `what` names the block.

    Without a limit on memory, it may add a share of what is free: the system would end it without a line. `leaving` is
    called right before the end; what it returns ends the line.
    """
    done, process = threading.Event(), psutil.Process()
    resting = process.memory_info().rss
    most, reason = limits.within_free().memory_bytes or 0, "more than --memory allows: give more"
    if limits.memory_bytes is None:
        reason = "most of what is free: close something, or give --memory where the command has it"

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            added = process.memory_info().rss - resting
            if added > most:
                _leave(f"{what} took {added / 1e6:,.0f} MB, {reason}{leaving()}")
            if limits.end is not None and CLOCK.now() > limits.end:
                _leave(f"{what} took longer than --time allows: give more time{leaving()}")

    watcher = threading.Thread(target=watch, daemon=True)
    with ended_by(limits.end):
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


@contextmanager
def _reader_of_tracebacks() -> Iterator[Any]:
    """Give a file whose reader makes one line of tracebacks; on Windows, which lacks the shell for it, stderr."""
    if sys.platform == "win32":
        yield sys.stderr
        return
    with subprocess.Popen(["/bin/sh", "-c", _LAST_WORDS], stdin=subprocess.PIPE) as listening:
        yield listening.stdin


def _take_back(file: Any) -> None:
    """Let no traceback that was written so far end this process."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.write(file.fileno(), b"awake\n")


def _leave(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"tuner: {line}\n".encode())
    os._exit(LIMIT)
