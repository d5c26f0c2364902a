"""Watch one job: read its memory every 10 ms, enforce its deadline, warn it, then have it killed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

from tuner.errors import BudgetError, MemoryLimitError, TunerError, with_trace
from tuner.search.processes.channel import Channel, MessageError
from tuner.search.processes.exit_status import describe_exit
from tuner.search.processes.job_memory import MOST_PROCESSES, JobMemory
from tuner.search.processes.messages import Failure, decode, result_from
from tuner.search.processes.process_tree import kill_group

T = TypeVar("T")
#: Seconds between two readings of the memory.
POLL_SECONDS = 0.01
#: Seconds between two readings near the limit.
HASTY_SECONDS = 0.001
#: Share of the limit from which readings are hasty.
NEAR_SHARE = 0.7
#: Share of the limit by which memory grows between two readings from which the next ones are hasty.
FAST_SHARE = 0.05
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
    """

    verdict: Verdict
    value: T | None = None
    failure: Failure | None = None
    exit_code: int | None = None
    out_of_memory: bool = False
    seconds: float = 0.0
    most_bytes: int = 0

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
        most_bytes: The largest memory seen, above the baseline.
        heard_all: Whether its process has said its last word, and is about to end by itself.

    Args:
        channel: To its process.
        method: The session's method that it calls.
        limits: What it may take.
        interrupt: Read while it runs.
        progress: Called with what it reports.
        memory: Reads its memory.
    """

    def __init__(
        self,
        channel: Channel,
        method: str,
        limits: JobLimits,
        interrupt: Interrupt,
        progress: Progress | None,
        memory: JobMemory,
    ) -> None:
        self._channel, self._method, self._limits, self._memory = channel, method, limits, memory
        self._interrupt, self._progress = interrupt, progress
        self._is_asked = False
        self._warnings = 0
        self._woken_at = time.monotonic()
        self._poll_seconds, self._above = POLL_SECONDS, 0
        self.most_bytes = 0
        self.heard_all = False

    def watch(self) -> tuple[Verdict, Any]:
        """Wait for the job's result, or for a reason to end it."""
        while True:
            had_ended = self._memory.has_ended  # a process that it has started may keep the socket open
            try:
                messages = self._channel.listen(self._poll_seconds)
                if messages is None and had_ended:
                    self.heard_all = True
                    return "crashed", None
                for message in messages or ():
                    kind, value = decode(message)
                    if kind == "progress":
                        self._take_in(value)
                    elif kind == "result":
                        self.heard_all = True
                        return "result", result_from(self._method, value)
                    else:
                        self.heard_all = True
                        return "failure", Failure(**value)
            except EOFError:
                self.heard_all = True
                return "crashed", None
            except MessageError as error:
                return "failure", Failure(str(error), "")
            if (verdict := self._limit()) is not None:
                return verdict

    def _take_in(self, progress: Mapping[str, Any]) -> None:
        if "resting_bytes" in progress:
            self._memory.set_baseline(int(progress["resting_bytes"]))
            return
        self._warnings += "warning" in progress
        if self._progress is None or ("warning" in progress and self._warnings > MOST_WARNINGS):
            return
        if self._progress(progress) is True:
            self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._channel.send(b"s")

    def _limit(self) -> tuple[Verdict, Any] | None:
        now = time.monotonic()
        if now - self._woken_at >= WAKE_SECONDS:
            self._woken_at = now
            self._memory.wake()
        if verdict := self._read_memory():
            return verdict
        if self._interrupt.asked:
            return "interrupted", None
        if self._limits.warn_at is not None and now >= self._limits.warn_at:
            self._ask_to_stop()
        if self._limits.kill_at is not None and now >= self._limits.kill_at:
            return "deadline", now
        return None

    def _read_memory(self) -> tuple[Verdict, Any] | None:
        above, limit = self._memory.bytes_above_baseline(), self._limits.memory_bytes
        self.most_bytes = max(self.most_bytes, above)
        if self._memory.processes > MOST_PROCESSES:
            return "failure", Failure(f"it started more than {MOST_PROCESSES} processes, and was killed", "")
        if limit is None:
            return None
        if above > limit:
            kill_group(self._memory.pid)
            return "memory", above
        is_hasty = above > NEAR_SHARE * limit or above - self._above > FAST_SHARE * limit
        self._above, self._poll_seconds = above, HASTY_SECONDS if is_hasty else POLL_SECONDS
        return None
