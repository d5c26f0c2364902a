"""The parent's side: hands jobs to children, reads their memory every 10 ms, owns the deadline, warns, then kills."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import send_handle
from typing import Any, Literal, Self

import psutil

from tuner.backends.memory import HUGE_PAGES
from tuner.errors import TunerError
from tuner.search.jobs import Failure, Job
from tuner.task import Task

POLL_SECONDS = 0.01
#: How long a child may take, once told to stop, before it is killed.
GRACE_SECONDS = 1.0
#: OpenMP's threads wait for each other by spinning; beside another busy process that costs up to twenty times the work.
PATIENT_THREADS = {"GOMP_SPINCOUNT": "30000"}

#: What a user calls a backend's methods.
SAID = {
    "describe": "looking at the model",
    "measure": "measuring this device",
    "untouched": "scoring the untouched model",
    "export": "the export",
}

Verdict = Literal["result", "failure", "memory", "deadline", "interrupted", "crashed"]
Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may use.

    Attributes:
        warn_at: Clock (`time.monotonic`) at which the child is told to stop; None for never.
        kill_at: Clock at which it is killed; None for never.
        memory_bytes: Above the child's resting size; None for no limit.
    """

    warn_at: float | None = None
    kill_at: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended.

    Attributes:
        verdict: Whether it gave a result, failed, or was killed and for what.
        value: The result; a `Failure`; bytes or seconds at the time of a kill; the exit code of a crash.
        seconds: It took.
        most_bytes: The largest memory seen, above the resting size.
        over_seconds: For a memory kill, from the first reading over the limit to the kill.
    """

    verdict: Verdict
    value: Any
    seconds: float
    most_bytes: int
    over_seconds: float = 0.0


class Interrupt:
    """Whether the user wants to stop; set by a signal handler, read by the loop."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        """Ask for an orderly end; asking twice ends at once.

        Raises:
            KeyboardInterrupt: It was asked before.
        """
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def check(self) -> None:
        """End where it was asked for.

        Raises:
            KeyboardInterrupt: It was.
        """
        if self.asked:
            raise KeyboardInterrupt


class Supervisor:
    """Runs jobs one at a time, each in a fresh child.

    Args:
        preload: Modules the children share.
        task: What they work on: the text that names it, or the task itself.
        interrupt: Read while a job runs.
        warm: Backends that load what all of their jobs need before the first: worth it for more than a few jobs.

    Raises:
        TunerError: The task cannot be loaded.
    """

    def __init__(
        self,
        preload: Sequence[str],
        task: str | Task,
        interrupt: Interrupt | None = None,
        warm: Sequence[str] = (),
    ) -> None:
        self.interrupt = interrupt or Interrupt()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tuner.search.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**PATIENT_THREADS, **HUGE_PAGES, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else None,
            )
        self._control = Connection(ours.detach())
        with suppress(BrokenPipeError):  # told when the first job waits for it
            self._control.send((tuple(preload), task, tuple(warm)))
        self._ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process that children are forked from."""
        self._control.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def call(self, backend: str, method: str, arguments: Mapping[str, Any], limits: Limits | None = None) -> Any:
        """Run a job that must succeed and return its result.

        Raises:
            TunerError: It failed, or broke a limit; the message says how.
        """
        ended = self.run(Job(backend, method, dict(arguments), reports=False), limits or Limits())
        return result(SAID.get(method, f"{backend}.{method}"), ended)

    def run(self, job: Job, limits: Limits, progress: Progress | None = None) -> Ended:
        """Run a job under limits and say how it ended."""
        started = time.monotonic()
        if (verdict := self._wait_ready(limits)) is not None:
            return Ended(verdict, time.monotonic(), time.monotonic() - started, 0)
        started = time.monotonic()
        ours, theirs = Pipe()
        try:
            self._control.send_bytes(pickle.dumps(job))
            send_handle(self._control, theirs.fileno(), self._process.pid)
            pid = int(self._control.recv())
        except (EOFError, OSError):
            raise self._gone() from None
        finally:
            theirs.close()
        guard = _Guard(pid, ours, limits, self.interrupt, progress)
        try:
            verdict, value = guard.watch()
        finally:
            if guard.killed:
                _kill(pid)
            ours.close()
            code = self._exit_code()
        if verdict == "crashed":
            if self.interrupt.asked:  # whoever ended the parent ended its whole group
                verdict, value = "interrupted", None
            elif code is None:
                raise self._gone()
            else:
                value = code
        return Ended(verdict, value, time.monotonic() - started, guard.most_bytes, guard.over_seconds)

    def _exit_code(self) -> int | None:
        """Return the child's exit code; None where the process it was forked from is gone."""
        try:
            return int(self._control.recv())
        except (EOFError, OSError):
            return None

    def _gone(self) -> BaseException:
        """Return what the end of the process that children are forked from means."""
        if self.interrupt.asked:
            return KeyboardInterrupt()
        return TunerError("the process that runs trials was ended from outside: --resume goes on")

    def _wait_ready(self, limits: Limits) -> Verdict | None:
        """Wait until the libraries are loaded, as far as the user and the deadline allow."""
        if self._ready:
            return None
        try:
            while not self._control.poll(POLL_SECONDS):
                if self.interrupt.asked:
                    return "interrupted"
                if limits.kill_at is not None and time.monotonic() >= limits.kill_at:
                    return "deadline"
            error = self._control.recv()
        except (EOFError, OSError):
            raise TunerError("the process for trials did not start: see the message above") from None
        if error is not None:
            raise error
        self._ready = True
        return None


class _Guard:
    """Watches one child."""

    def __init__(
        self, pid: int, pipe: Connection, limits: Limits, interrupt: Interrupt, progress: Progress | None
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
        """Wait for the child's word, or for a reason to end it."""
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
        elif self._progress is not None:
            self._progress(value)

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
                _kill(self._pid)
                self.over_seconds = time.monotonic() - now
                return "memory", over
        if self._interrupt.asked:
            self.killed = True
            return "interrupted", None
        if self._warned_at is None and self._limits.warn_at is not None and now >= self._limits.warn_at:
            self._warned_at = now
            self._pipe.send("stop")
        if self._limits.kill_at is not None and now >= self._limits.kill_at:
            self.killed = True
            return "deadline", now
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself


def result(what: str, ended: Ended) -> Any:
    """Return a job's result.

    Raises:
        TunerError: It was a user's mistake, or broke a limit; one line.
        RuntimeError: It failed; with the child's traceback.
        KeyboardInterrupt: The user ended it.
    """
    if ended.verdict == "result":
        return ended.value
    if ended.verdict == "failure" and isinstance(ended.value, Failure):
        trace = f"\n{ended.value.trace}" if ended.value.trace else ""
        kind = TunerError if not trace else RuntimeError
        raise kind(ended.value.text + trace)
    if ended.verdict == "interrupted":
        raise KeyboardInterrupt
    reasons = {
        "memory": f"took {ended.most_bytes / 1e6:,.0f} MB, more than --memory allows",
        "deadline": "took longer than --time: give more; what was stored so far is kept",
        "crashed": f"ended with exit code {ended.value}: the system may have run out of memory",
    }
    raise TunerError(f"{what} {reasons[ended.verdict]}")


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
