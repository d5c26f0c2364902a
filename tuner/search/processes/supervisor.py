"""The parent's side: hands jobs to children and watches them."""

import os
import pickle
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import send_handle
from typing import Any, Self

from tuner.errors import TaskError, TunerError
from tuner.process_memory import HUGE_PAGES
from tuner.search.processes.guard import POLL_SECONDS, Guard, Interrupt, JobLimits, JobResult, Progress, Verdict, kill
from tuner.search.processes.messages import Job, Start
from tuner.task.info import TaskOutline, read_outline

#: How long the process may take to end before it is killed.
GRACE_SECONDS = 1.0
#: How long loading a task may take where the user says nothing.
LOADING_SECONDS = 600.0
#: OpenMP's threads wait by spinning; next to another busy process that costs up to twenty times the work.
PATIENT_THREADS = {"GOMP_SPINCOUNT": "30000"}


class Supervisor:
    """Runs jobs one at a time, each in a fresh child.

    Args:
        start: What the process that children are forked from prepares.
        interrupt: Read while a job runs.
    """

    def __init__(self, start: Start, interrupt: Interrupt | None = None) -> None:
        self.interrupt = interrupt or Interrupt()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tuner.search.processes.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**PATIENT_THREADS, **HUGE_PAGES, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else None,
            )
        self._control = Connection(ours.detach())
        with suppress(BrokenPipeError):  # the first job reports it
            self._control.send(start)
        self._ready, self._started = False, time.monotonic()
        self._task: TaskOutline | None = None

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

    def run(self, job: Job, limits: JobLimits, progress: Progress | None = None) -> JobResult[Any]:
        """Run a job under limits and say how it ended.

        Raises:
            TunerError: The task cannot be loaded, or the process that children are forked from is gone.
        """
        started = time.monotonic()
        if (verdict := self._wait_ready(limits)) is not None:
            return JobResult(verdict, seconds=time.monotonic() - started)
        started = time.monotonic()
        ours, theirs = Pipe()
        try:
            self._control.send((job.backend, job.plan))
            self._control.send_bytes(pickle.dumps(job))
            send_handle(self._control, theirs.fileno(), self._process.pid)
            pid = int(self._control.recv())
        except (EOFError, OSError):
            raise self._gone() from None
        finally:
            theirs.close()
        guard = Guard(pid, ours, limits, self.interrupt, progress)
        try:
            verdict, value = guard.watch()
        finally:
            if guard.killed:
                kill(pid)
            ours.close()
            code = self._exit_code()
        if verdict == "crashed":
            if self.interrupt.asked:  # whoever ended the parent ended its whole group
                verdict = "interrupted"
            elif code is None:
                raise self._gone()
        return JobResult(
            verdict,
            value=value if verdict == "result" else None,
            failure=value if verdict == "failure" else None,
            exit_code=code if verdict == "crashed" else None,
            seconds=time.monotonic() - started,
            most_bytes=guard.most_bytes,
            over_seconds=guard.over_seconds,
        )

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
        return TunerError("the process that runs trials was killed by the system or a user; continue with --resume")

    def task(self, limits: JobLimits) -> TaskOutline:
        """Return the task, as the other process has loaded it; without a deadline it has `LOADING_SECONDS`.

        Raises:
            TunerError: It cannot be loaded, or not in time.
            KeyboardInterrupt: The user ended it.
        """
        end = limits.kill_at or self._started + LOADING_SECONDS
        verdict = self._wait_task(replace(limits, kill_at=end))
        if verdict == "deadline" and limits.kill_at is None:
            raise TaskError(f"loading the task took longer than {LOADING_SECONDS:.0f} s: give it more with --time")
        if self._task is None:
            nothing: JobResult[TaskOutline] = JobResult(verdict or "interrupted")
            return nothing.unwrap("loading the task")
        return self._task

    def _wait_task(self, limits: JobLimits) -> Verdict | None:
        """Wait until the task is loaded."""
        if self._task is not None:
            return None
        verdict, content = self._wait_message(limits)
        if verdict is None:
            self._task = read_outline(content)
        return verdict

    def _wait_ready(self, limits: JobLimits) -> Verdict | None:
        """Wait until the libraries are loaded, as far as the user and the deadline allow."""
        if self._ready:
            return None
        verdict = self._wait_task(limits) or self._wait_message(limits)[0]
        self._ready = verdict is None
        return verdict

    def _wait_message(self, limits: JobLimits) -> tuple[Verdict | None, Any]:
        """Return what the process said before its first job, or why it was not waited for any longer."""
        try:
            while not self._control.poll(POLL_SECONDS):
                if self.interrupt.asked:
                    return "interrupted", None
                if limits.kill_at is not None and time.monotonic() >= limits.kill_at:
                    return "deadline", None
            message = self._control.recv()
        except (EOFError, OSError):
            raise self._never_began() from None
        if isinstance(message, Exception):
            raise message
        return None, message

    def _never_began(self) -> TunerError:
        try:
            code = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            code = 1
        if code == 1:  # of an exception: Python has printed it
            return TunerError("the process for trials did not start: see the message above")
        return TaskError(
            f"the process that opens the task ended with exit code {code} before its first job: "
            "the code of the task, of its model or of a plugin ended it"
        )


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
