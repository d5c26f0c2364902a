"""Watch one job: read its memory every 10 ms, enforce its deadline, warn it, then have it killed."""

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

from tuner.errors import BudgetError, MemoryLimitError, TunerError, with_trace
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import memory_limit
from tuner.search.processes.channel import Channel
from tuner.search.processes.job_memory import MOST_PROCESSES, JobMemory
from tuner.search.processes.messages import Failure, MessageError, result_from
from tuner.search.processes.process_tree import kill_group
from tuner.units import format_bytes

T = TypeVar("T")
#: Seconds between two readings of the memory; near the limit, or where it grows fast, they are hasty.
POLL_SECONDS, HASTY_SECONDS = 0.01, 0.001
#: Shares of the limit: from which readings are hasty, and by which memory grows between two of them until they are.
NEAR_SHARE, FAST_SHARE = 0.7, 0.05
#: Share of what a job had when memory ran out that is proposed as its limit.
SAFE_SHARE = 0.8
#: How often a job that is stopped is continued: Ctrl-Z stops it with its parent.
WAKE_SECONDS = 1.0
#: A job's further warnings are not passed on.
MOST_WARNINGS = 100
#: Signals that a process is sent for what its own code does.
NATIVE_CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"})
Verdict = Literal["result", "failure", "memory", "deadline", "interrupted", "crashed"]
#: Called with the progress that a job reports; where it returns True, the job is asked to stop.
Progress = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of a job; None for none.

    It is asked to stop at ``warn_at`` (of `CLOCK`), and killed at ``kill_at``, or where its processes have more
    memory than ``memory_bytes`` above its resting size. No file that it writes is longer than ``file_bytes``.
    """

    warn_at: float | None = None
    kill_at: float | None = None
    memory_bytes: int | None = None
    file_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class JobResult(Generic[T]):
    """How a job ended: what it returned, raised, or was killed for.

    ``exit_code`` is that of a process that crashed, None where it had to be killed; ``out_of_memory`` says that the
    system killed a process meanwhile. ``most_bytes`` is the largest memory seen, above the resting size.
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
        code = self.exit_code
        if code is None:
            return "ended its connection without a result, and had to be killed"
        if code >= 0:
            return f"ended with exit code {code}: a library or a plugin ended it"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        if name == "SIGKILL":
            cause = out_of_memory(self.most_bytes) if self.out_of_memory else "another program or a user ended it"
            return f"was ended by {name}: {cause}"
        if name in NATIVE_CRASHES:
            return f"was ended by {name}: a library or a plugin's native code crashed"
        return f"was ended by {name}"

    def unwrap(self, what: str) -> T:
        """Return the value; ``what`` is a user's name for the job, for the message.

        Raises:
            TunerError: It was a user's mistake, or broke a limit; one line.
            RuntimeError: It failed; with the child's traceback.
        """
        if self.verdict == "result":
            return cast("T", self.value)
        if self.verdict == "interrupted":
            raise KeyboardInterrupt
        if self.failure is not None:
            if self.failure.is_bug:
                raise RuntimeError(f"{self.failure.text}\n{self.failure.trace}")
            raise with_trace(TunerError(self.failure.text), self.failure.trace)
        if self.verdict == "memory":
            limit = "--memory allows (by default most of what is free): give more, or close other programs"
            raise MemoryLimitError(f"{what} took {self.most_bytes / 1e6:,.0f} MB, more than {limit}")
        if self.verdict == "deadline":
            reason = "took longer than --time allows: give more time; what was stored so far is kept"
            raise BudgetError(f"{what} {reason}")
        raise TunerError(f"{what} {self.ending}")


def out_of_memory(most_bytes: int = 0) -> str:
    """Say at which limit memory ran out, and what to give; a job had `most_bytes`."""
    limit = memory_limit()
    where = "of this device" if limit is None else f"at the limit of {format_bytes(limit)} of its control group"
    memory = f"--memory {SAFE_SHARE * most_bytes / 1e6:.0f}MB" if most_bytes >= 1e6 else "a smaller --memory"  # noqa: PLR2004 - a MB
    more = "" if limit is None else ", or give the group more"
    return f"out of memory {where}: give {memory}, so that plans that need more are left out{more}"


class Interrupt:
    """A request of the user to stop: set by a signal handler, read by the loop."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        """Ask for an orderly end; asking twice raises KeyboardInterrupt at once."""
        self.check()
        self.asked = True

    def check(self) -> None:
        """Raise KeyboardInterrupt where it was asked for."""
        if self.asked:
            raise KeyboardInterrupt


class Guard:
    """Watches one job.

    ``most_bytes`` is the largest memory seen, above the baseline; ``heard_all`` says that its process has said its last
    word, and is about to end by itself.
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
        self._woken_at = CLOCK.now()
        self._poll_seconds, self._above = POLL_SECONDS, 0
        self.most_bytes = 0
        self.heard_all = False

    def watch(self) -> tuple[Verdict, Any]:
        """Wait for the job's result, or for a reason to end it."""
        while True:
            try:
                verdict = self._listen() or self._limit()
            except EOFError:
                self.heard_all = True
                return "crashed", None
            except MessageError as error:
                return "failure", Failure(str(error))
            if verdict is not None:
                return verdict

    def _listen(self) -> tuple[Verdict, Any] | None:
        had_ended = self._memory.has_ended  # a process that it has started may keep the socket open
        messages = self._channel.listen(self._poll_seconds)
        if messages is None and had_ended:
            raise EOFError
        for message in messages or ():
            kind, value = json.loads(message)
            if kind == "progress":
                self._take_in(value)
                continue
            self.heard_all = True
            return kind, result_from(self._method, value) if kind == "result" else Failure(**value)
        return None

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
        now = CLOCK.now()
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
            return "deadline", None
        return None

    def _read_memory(self) -> tuple[Verdict, Any] | None:
        above, limit = self._memory.bytes_above_baseline(), self._limits.memory_bytes
        self.most_bytes = max(self.most_bytes, above)
        if self._memory.processes > MOST_PROCESSES:
            return "failure", Failure(f"it started more than {MOST_PROCESSES} processes, and was killed")
        if limit is None:
            return None
        if above > limit:
            kill_group(self._memory.pid)
            return "memory", None
        is_hasty = above > NEAR_SHARE * limit or above - self._above > FAST_SHARE * limit
        self._above, self._poll_seconds = above, HASTY_SECONDS if is_hasty else POLL_SECONDS
        return None
