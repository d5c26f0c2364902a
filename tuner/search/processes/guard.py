"""Watch one job: read its memory every 10 ms, enforce its deadline, warn it, then have it killed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

from tuner.errors import BudgetError, MemoryLimitError, TunerError, with_trace
from tuner.search.processes.endings import describe_exit
from tuner.search.processes.family import kill_group
from tuner.search.processes.frames import FAILURE, PROGRESS, RESULT, Channel, FrameError
from tuner.search.processes.job_memory import MOST_PROCESSES, JobMemory
from tuner.search.processes.messages import Failure
from tuner.search.processes.wire import failure_from, progress_from, result_from

T = TypeVar("T")
POLL_SECONDS = 0.01
#: The memory is read so often once it is over this share of the limit, or grows by as much between two readings.
HASTY_SECONDS, NEAR, FAST = 0.001, 0.7, 0.05
#: How often a job that is stopped is continued: Ctrl-Z stops it with its parent.
WAKE_SECONDS = 1.0
#: A job's further warnings are not passed on.
MOST_WARNINGS = 100
Verdict = Literal["result", "failure", "memory", "deadline", "interrupted", "crashed"]
#: Called with the progress that a job reports; where it returns True, the job is asked to stop.
Progress = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of a job.

    Attributes:
        warn_at: Clock (`time.monotonic`) at which the child is asked to stop; None for never.
        kill_at: Clock at which it is killed; None for never.
        memory_bytes: Memory of the job's processes above the child's resting size; None for no limit.
        file_bytes: Longest file that the job may write; None for no limit.
    """

    warn_at: float | None = None
    kill_at: float | None = None
    memory_bytes: int | None = None
    file_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class JobResult(Generic[T]):
    """How a job ended.

    Attributes:
        verdict: Whether it gave a result, failed, or was killed and for what.
        value: What it returned; None without a result.
        failure: What it raised; None if it did not.
        exit_code: Exit code of a process that crashed; None where it had to be killed.
        out_of_memory: Whether the system killed a process meanwhile because memory ran out.
        seconds: Wall time.
        most_bytes: The largest memory seen, above the resting size.
        over_seconds: For a memory kill, from the first reading over the limit to the kill.
    """

    verdict: Verdict
    value: T | None = None
    failure: Failure | None = None
    exit_code: int | None = None
    out_of_memory: bool = False
    seconds: float = 0.0
    most_bytes: int = 0
    over_seconds: float = 0.0

    @property
    def ending(self) -> str:
        """How a process that crashed ended, for people: ``was ended by SIGSEGV: ...``."""
        return describe_exit(self.exit_code, out_of_memory=self.out_of_memory)

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
            raise with_trace(TunerError(self.failure.text), self.failure.trace)
        reasons = {
            "memory": f"took {self.most_bytes / 1e6:,.0f} MB, more than --memory allows",
            "deadline": "took longer than --time allows: give more time; what was stored so far is kept",
            "crashed": self.ending,
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
    """Watches one job.

    Attributes:
        most_bytes: The largest memory seen, above the resting size.
        over_seconds: For a memory kill, from the first reading over the limit to the kill.
        heard_all: Whether its process has said its last word, and is about to end by itself.

    Args:
        channel: To its process.
        method: The session's method that it calls.
        limits: What it may take.
        interrupt: Read while it runs.
        progress: Called with what it reports.
        memory: Reads its memory; None where its process has ended already.
    """

    def __init__(
        self,
        channel: Channel,
        method: str,
        limits: JobLimits,
        interrupt: Interrupt,
        progress: Progress | None,
        memory: JobMemory | None,
    ) -> None:
        self._channel, self._method, self._limits, self._memory = channel, method, limits, memory
        self._interrupt, self._progress = interrupt, progress
        self._warned_at: float | None = None
        self._warnings = 0
        self._woken_at = time.monotonic()
        self._read_at, self._poll_seconds, self._above = 0.0, POLL_SECONDS, 0
        self.most_bytes = 0
        self.over_seconds = 0.0
        self.heard_all = False

    def watch(self) -> tuple[Verdict, Any]:
        """Wait for the job's result, or for a reason to end it."""
        while True:
            try:
                for kind, content in self._channel.listen(self._poll_seconds):
                    if kind == PROGRESS:
                        self._heard(progress_from(content))
                        if time.monotonic() - self._read_at >= self._poll_seconds and (verdict := self._limit()):
                            return verdict
                        continue
                    ended = self._ended(kind, content)
                    self.heard_all = True
                    return ended
            except EOFError:
                self.heard_all = True
                return "crashed", None
            except FrameError as error:
                return "failure", Failure(str(error), "")
            if (verdict := self._limit()) is not None:
                return verdict

    def _ended(self, kind: bytes, content: bytes) -> tuple[Verdict, Any]:
        if kind == RESULT:
            return "result", result_from(self._method, content)
        if kind == FAILURE:
            return "failure", failure_from(content)
        raise FrameError("its process sent what is no message")

    def _heard(self, values: Mapping[str, Any]) -> None:
        if "resting_bytes" in values:
            if self._memory is not None:
                self._memory.rest(int(values["resting_bytes"]))
            return
        self._warnings += "warning" in values
        if self._progress is None or ("warning" in values and self._warnings > MOST_WARNINGS):
            return
        if self._progress(values) is True:
            self._stop()

    def _stop(self) -> None:
        """Ask the child to stop; it may have ended, and its last word is in the pipe."""
        self._channel.post(b"s")

    def _limit(self) -> tuple[Verdict, Any] | None:
        now = self._read_at = time.monotonic()
        if self._memory is not None and now - self._woken_at >= WAKE_SECONDS:
            self._woken_at = now
            self._memory.wake()
        if self._memory is not None and (verdict := self._read_memory(self._memory)):
            return verdict
        if self._interrupt.asked:
            return "interrupted", None
        if self._warned_at is None and self._limits.warn_at is not None and now >= self._limits.warn_at:
            self._warned_at = now
            self._stop()
        if self._limits.kill_at is not None and now >= self._limits.kill_at:
            return "deadline", now
        return None

    def _read_memory(self, memory: JobMemory) -> tuple[Verdict, Any] | None:
        above, limit = memory.above(), self._limits.memory_bytes
        self.most_bytes = max(self.most_bytes, above)
        if memory.processes > MOST_PROCESSES:
            return "failure", Failure(f"it started more than {MOST_PROCESSES} processes, and was killed", "")
        if limit is None:
            return None
        if above > limit:
            kill_group(memory.pid)
            self.over_seconds = time.monotonic() - self._read_at
            return "memory", above
        is_hasty = above > NEAR * limit or above - self._above > FAST * limit
        self._above, self._poll_seconds = above, HASTY_SECONDS if is_hasty else POLL_SECONDS
        return None
