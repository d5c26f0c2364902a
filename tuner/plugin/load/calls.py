"""Calls of plugins' code in this process: under a time limit, without its prints, and not after repeated faults."""

import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import TypeVar

from tuner.errors import PluginError, first_line, place_of, text_of
from tuner.machine.awake import CLOCK

log = logging.getLogger(__name__)
R = TypeVar("R")
#: What a call of a function that only computes may take.
CALL_SECONDS = 2.0
#: What a call of an observer may take, which may write.
OBSERVER_SECONDS = 5.0
#: What an import may take.
IMPORT_SECONDS = 10.0
#: What catches the exception is interrupted again so often: a finaliser, or a bare `except`.
AGAIN_SECONDS = 0.5
#: However little is left of a run's time, a call that only computes ends within this.
LEAST_SECONDS = 0.2
#: A plugin that fails so often takes no further part.
MOST_FAULTS = 3
#: Files of what begins and ends a block: interrupted there, it would leave the timer on.
_BLOCK_FILES = frozenset({__file__, contextlib.__file__})


class OverdueError(BaseException):
    """Raised in code that takes longer than so many seconds; no `Exception`, which that code might catch."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it took longer than {seconds:.2g} s")
        self.seconds = seconds


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer in a block, and send what it prints to stderr: stdout is the command's own.

    Blocks may be inside each other; the shorter limit holds. Only the main thread can be interrupted, not where native
    code neither returns nor releases Python's lock, and not on Windows.

    Raises:
        OverdueError: (in the block) The time is up; again and again, where the block catches it.
    """
    with redirect_stdout(sys.stderr), unforked():
        if not _can_interrupt():
            yield
            return
        started, active = CLOCK.now(), True
        outer = signal.getitimer(signal.ITIMER_REAL)[0]
        seconds = min(seconds, outer or seconds)

        def interrupt(_signal: int, frame: FrameType | None) -> None:
            if active and frame is not None and frame.f_code.co_filename not in _BLOCK_FILES:
                raise OverdueError(seconds)

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
        try:
            try:
                yield
            finally:
                active = False
        finally:  # the inner one may itself have been interrupted
            active = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            if outer:
                left = outer - (CLOCK.now() - started)
                signal.setitimer(signal.ITIMER_REAL, max(1e-3, left), AGAIN_SECONDS)


@contextmanager
def unforked() -> Iterator[None]:
    """End a copy of this process that a block has forked and that comes back: it would go on as the command does."""
    own = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own:
            os._exit(1)


@contextmanager
def uncounted() -> Iterator[None]:
    """Do work of our own inside a `limited` block: what it takes does not count."""
    if not _can_interrupt():
        yield
        return
    left, again = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, again)


def _can_interrupt() -> bool:
    """Return whether a timer can interrupt this thread: the main one, but not on Windows, which has no such timer."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def fault(error: BaseException) -> str:
    """Return what a plugin's function did, for people: ``raised ValueError: no (mine.py, line 14)``."""
    did = (
        f"took longer than {error.seconds:.2g} s" if isinstance(error, OverdueError) else f"raised {first_line(error)}"
    )
    return f"{did}{place_of(error)}"


def import_fault(error: BaseException) -> str:
    """Return what a plugin's import or one of its hooks did; see `fault`."""
    if not isinstance(error, OverdueError):
        return f"{type(error).__name__}: {text_of(error)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    where = [frame for frame in frames if frame.filename != __file__][-1]
    return f"its import took longer than {error.seconds:.2g} s ({Path(where.filename).name}, line {where.lineno})"


class PluginCalls:
    """Calls of one host's plugins, which are all over at the end of the run, a clock of `tuner.machine.awake.CLOCK`."""

    def __init__(self, end: float | None = None) -> None:
        self._end = end
        self._faults: Counter[str] = Counter()

    def within(self, seconds: float) -> float:
        """Return how many of `seconds` the run's end leaves."""
        left = seconds if self._end is None else self._end - CLOCK.now()
        return max(LEAST_SECONDS, min(seconds, left))

    def is_out(self, plugin: str) -> bool:
        """Return whether a plugin failed so often that it is called no more."""
        return self._faults[plugin] >= MOST_FAULTS

    def run(self, plugin: str, what: str, seconds: float, function: Callable[..., R], *arguments: object) -> R:
        """Call a plugin's function, which may take so many seconds; `what` names it for people.

        Raises:
            PluginError: It raised, called `sys.exit`, took too long, or the plugin is called no more.
        """
        if self.is_out(plugin):
            raise PluginError(f"plugin {plugin}: it failed {MOST_FAULTS} times and takes no further part")
        try:
            with limited(self.within(seconds)):
                return function(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may raise anything, and may call sys.exit
            self._faults[plugin] += 1
            line = f"plugin {plugin}: {what} {fault(error)}"
            out = f"; it failed {MOST_FAULTS} times and takes no further part" if self.is_out(plugin) else ""
            log.warning("%s%s", line, out, exc_info=isinstance(error, Exception))
            raise PluginError(line) from error
