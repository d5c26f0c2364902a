"""Watch one child: read its memory every 10 ms, enforce its deadline, warn it, then kill it."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, Literal, TypeVar, cast

import psutil

from tuner.errors import BudgetError, MemoryLimitError, TunerError
from tuner.search.processes.messages import Failure

T = TypeVar("T")
POLL_SECONDS = 0.01
Verdict = Literal["result", "failure", "memory", "deadline", "interrupted", "crashed"]
#: Called with the progress that a job reports; where it returns True, the job is asked to stop.
Progress = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of a job.

    Attributes:
        warn_at: Clock (`time.monotonic`) at which the child is asked to stop; None for never.
        kill_at: Clock at which it is killed; None for never.
        memory_bytes: Memory above the child's resting size; None for no limit.
    """

    warn_at: float | None = None
    kill_at: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class JobResult(Generic[T]):
    """How a job ended.

    Attributes:
        verdict: Whether it gave a result, failed, or was killed and for what.
        value: What it returned; None without a result.
        failure: What it raised; None if it did not.
        exit_code: Exit code of a process that crashed.
        seconds: Wall time.
        most_bytes: The largest memory seen, above the resting size.
        over_seconds: For a memory kill, from the first reading over the limit to the kill.
    """

    verdict: Verdict
    value: T | None = None
    failure: Failure | None = None
    exit_code: int | None = None
    seconds: float = 0.0
    most_bytes: int = 0
    over_seconds: float = 0.0

    def unwrap(self, what: str) -> T:
        """Return the value.

        Args:
            what: A user's name for the job, for the message.

        Raises:
            TunerError: It was a user's mistake, or broke a limit; one line.
            RuntimeError: It failed; with the child's traceback.
            KeyboardInterrupt: The user ended it.
        """
        if self.verdict == "result":
            return cast("T", self.value)
        if self.verdict == "interrupted":
            raise KeyboardInterrupt
        if self.failure is not None:
            if self.failure.is_bug:
                raise RuntimeError(f"{self.failure.text}\n{self.failure.trace}")
            raise TunerError(self.failure.text)
        reasons = {
            "memory": f"took {self.most_bytes / 1e6:,.0f} MB, more than --memory allows",
            "deadline": "took longer than --time allows: give more time; what was stored so far is kept",
            "crashed": f"ended with exit code {self.exit_code}: the system may have run out of memory",
        }
        kinds = {"memory": MemoryLimitError, "deadline": BudgetError}
        raise kinds.get(self.verdict, TunerError)(f"{what} {reasons[self.verdict]}")


class Interrupt:
    """A request of the user to stop: set by a signal handler, read by the loop."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        """Ask for an orderly end; asking twice ends at once.

        Raises:
            KeyboardInterrupt: It was asked for before.
        """
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def check(self) -> None:
        """End where it was asked for.

        Raises:
            KeyboardInterrupt: It was asked for.
        """
        if self.asked:
            raise KeyboardInterrupt


class Guard:
    """Watches one child."""

    def __init__(
        self, pid: int, pipe: Connection, limits: JobLimits, interrupt: Interrupt, progress: Progress | None
    ) -> None:
        self._pid, self._pipe, self._limits = pid, pipe, limits
        self._interrupt, self._progress = interrupt, progress
        self._process: psutil.Process | None = None
        self._resting: int | None = None
        self._warned_at: float | None = None
        self.most_bytes = 0
        self.over_seconds = 0.0
        self.killed = False

    def watch(self) -> tuple[Verdict, Any]:
        """Wait for the child's result, or for a reason to end it."""
        while True:
            try:
                while self._pipe.poll(POLL_SECONDS):
                    kind, value = self._pipe.recv()
                    if kind == "progress":
                        self._heard(value)
                        if (verdict := self._limit()) is not None:
                            return verdict
                    else:
                        return kind, value
            except (EOFError, OSError):
                return "crashed", None
            if (verdict := self._limit()) is not None:
                return verdict

    def _heard(self, value: Mapping[str, Any]) -> None:
        if "resting_bytes" in value:
            self._resting = int(value["resting_bytes"])
        elif self._progress is not None and self._progress(value) is True:
            self._stop()

    def _stop(self) -> None:
        """Ask the child to stop; it may have ended, and its last word is in the pipe."""
        with suppress(OSError):
            self._pipe.send("stop")

    def _resident(self) -> int:
        if self._process is None:
            self._process = psutil.Process(self._pid)
        return int(self._process.memory_info().rss)

    def _limit(self) -> tuple[Verdict, Any] | None:
        now = time.monotonic()
        if self._resting is not None:
            try:
                over = self._resident() - self._resting
            except psutil.NoSuchProcess:
                return None  # it has ended; its last word is in the pipe
            self.most_bytes = max(self.most_bytes, over)
            if self._limits.memory_bytes is not None and over > self._limits.memory_bytes:
                self.killed = True
                kill(self._pid)
                self.over_seconds = time.monotonic() - now
                return "memory", over
        if self._interrupt.asked:
            self.killed = True
            return "interrupted", None
        if self._warned_at is None and self._limits.warn_at is not None and now >= self._limits.warn_at:
            self._warned_at = now
            self._stop()
        if self._limits.kill_at is not None and now >= self._limits.kill_at:
            self.killed = True
            return "deadline", now
        return None


def kill(pid: int) -> None:
    """Kill a process that may have ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself
