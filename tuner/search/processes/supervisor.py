"""The parent's side: hands jobs to children and watches them."""

import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Self

from tuner.errors import BudgetError, TaskError, TunerError
from tuner.machine.awake import CLOCK
from tuner.search.processes.channel import Channel
from tuner.search.processes.guard import (
    POLL_SECONDS,
    Guard,
    Interrupt,
    JobLimits,
    JobResult,
    Progress,
    Verdict,
    out_of_memory,
)
from tuner.search.processes.job_memory import JobMemory, oom_kills
from tuner.search.processes.messages import Failure, Job, Start
from tuner.search.processes.server import ForkServer, LostError, ServerState
from tuner.task.info import TaskOutline

#: How long a job's process may take to end after its last word, and the process that forked it to say so.
GRACE_SECONDS = 2.0
#: The same after it was killed: the user's time may be up.
KILLED_SECONDS = 0.3
#: How long loading a task may take where the user says nothing.
LOADING_SECONDS = 600.0
#: Times that a job runs where the process that children are forked from ends under it.
ATTEMPTS = 2
#: Times in a row that that process is started.
MOST_STARTS = 7
LOST = "the process that trials are forked from"


class Supervisor:
    """Runs jobs one at a time, each in a fresh child."""

    def __init__(
        self, start: Start, interrupt: Interrupt | None = None, looked: Callable[[int, int], object] | None = None
    ) -> None:
        self.interrupt = interrupt or Interrupt()
        self._start, self._starts, self._started = start, 1, CLOCK.now()
        self._kills_before = oom_kills()
        self._server = ForkServer(start, looked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that it has started."""
        self._server.close()

    def reopen(self, start: Start, looked: Callable[[int, int], object] | None = None) -> None:
        """Open another task in the same process if that is idle, else in a new one."""
        self._start, self._starts, self._started = start, 1, CLOCK.now()
        self._kills_before = oom_kills()
        if self._server.state is ServerState.IDLE:
            self._server.reopen(start, looked)
        else:
            self._server.close()
            self._server = ForkServer(start, looked)

    def run(self, job: Job, limits: JobLimits, progress: Progress | None = None) -> JobResult[Any]:
        """Run a job under limits and say how it ended.

        Where the process that children are forked from ends, or does not answer, it is started again, and so is the
        job: what ended it may have been the job or not. A job that it ends under twice has failed.
        """
        started = CLOCK.now()
        for _ in range(ATTEMPTS):
            try:
                result = self._run(job, limits, progress)
            except LostError as error:
                reason = out_of_memory() if oom_kills() > self._kills_before else str(error)
                self._replace(reason)
            else:
                self._starts = 1 if result.verdict == "result" else self._starts
                return result
        text = f"{LOST} was lost under it {ATTEMPTS} times: {reason}"
        return JobResult("failure", failure=Failure(text), seconds=CLOCK.now() - started)

    def _run(self, job: Job, limits: JobLimits, progress: Progress | None) -> JobResult[Any]:
        started = CLOCK.now()
        if (verdict := self._wait_idle(limits)) is not None:
            return JobResult(verdict, seconds=CLOCK.now() - started)
        started, killed_before = CLOCK.now(), oom_kills()
        server = self._server
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        try:
            with theirs:
                server.ask(job, theirs.fileno())
            verdict = self._wait(limits.kill_at, lambda: server.state is not ServerState.FORKING)
            if verdict is not None:
                server.state = ServerState.LOST  # it may have half of the job
                return JobResult(verdict, seconds=CLOCK.now() - started)
            memory = JobMemory(server.child, server.pid, server.excluded)
            guard = Guard(channel, job.method, limits, self.interrupt, progress, memory)
            try:
                verdict, value = guard.watch()
            except BaseException:
                server.end_job()
                raise
            code = self._end(guard, limits, verdict)
        finally:
            channel.close()
        if verdict == "crashed" and self.interrupt.asked:  # whoever ended the parent ended its whole group
            verdict = "interrupted"
        return JobResult(
            verdict,
            value=value if verdict == "result" else None,
            failure=value if verdict == "failure" else None,
            exit_code=code if verdict == "crashed" else None,
            out_of_memory=oom_kills() > killed_before,
            seconds=CLOCK.now() - started,
            most_bytes=guard.most_bytes,
        )

    def task(self, limits: JobLimits) -> TaskOutline:
        """Return the task, as the other process has loaded it; without a deadline it has `LOADING_SECONDS`."""
        verdict = self._wait_beginning("loading", limits, lambda: self._server.task is not None)
        if self._server.task is None:
            nothing: JobResult[TaskOutline] = JobResult(verdict or "interrupted")
            return nothing.unwrap("loading the task")
        return self._server.task

    def wait_open(self, limits: JobLimits) -> None:
        """Wait until the libraries are loaded, and the task is opened on its backends."""
        if (verdict := self._wait_idle(limits)) is not None:
            nothing: JobResult[None] = JobResult(verdict)
            nothing.unwrap("opening the task")

    def _wait_beginning(self, what: str, limits: JobLimits, is_done: Callable[[], bool]) -> Verdict | None:
        """Wait while the task is loaded and opened; raise where that fails: there was no first job."""
        try:
            verdict = self._wait(limits.kill_at or self._started + LOADING_SECONDS, is_done)
        except LostError as error:
            code = self._server.exit_status(GRACE_SECONDS)
            if code in {-signal.SIGTERM, -signal.SIGINT} and self._is_asked_soon():
                return "interrupted"
            if code is None:
                raise TunerError(f"the process for trials did not start: {error}") from None
            if code == 1:  # of an exception: Python has printed it
                raise TunerError("the process for trials did not start: see the message above") from None
            if code == -signal.SIGKILL and oom_kills() > self._kills_before:
                raise BudgetError(f"the process that opens the task was ended: {out_of_memory()}") from None
            if code < 0:
                lost: JobResult[None] = JobResult("crashed", exit_code=code)
                raise TunerError(f"the process that opens the task {lost.ending}") from None
            raise TaskError(
                f"the process that opens the task ended with exit code {code} before its first job: "
                "the code of the task, of its model or of a plugin ended it"
            ) from None
        if verdict == "deadline" and limits.kill_at is None:
            raise TaskError(
                f"{what} the task took longer than {LOADING_SECONDS:.0f} s: correct its code, or give --time"
            )
        return verdict

    def _is_asked_soon(self) -> bool:
        """Return whether this process is asked to stop, too, within moments: as where its whole group is ended."""
        until = CLOCK.now() + GRACE_SECONDS
        while not self.interrupt.asked and CLOCK.now() < until:
            time.sleep(POLL_SECONDS)
        return self.interrupt.asked

    def _end(self, guard: Guard, limits: JobLimits, verdict: Verdict) -> int | None:
        """End all that a job has started, and return the exit code of its process; None where that had to be killed.

        LostError where the process that it was forked from has ended, and the job's result is not known.
        """
        server = self._server
        try:
            if guard.heard_all:
                until = CLOCK.now() + GRACE_SECONDS
                self._listen_until(until if limits.kill_at is None else min(until, limits.kill_at + KILLED_SECONDS))
            code = server.exit_code
            server.end_job()
            self._listen_until(CLOCK.now() + KILLED_SECONDS)  # else the next job waits for it
        except LostError:
            server.close()
            if verdict == "crashed" and not self.interrupt.asked:
                raise
            return None
        return code

    def _listen_until(self, end: float) -> None:
        while self._server.state is ServerState.RUNNING and CLOCK.now() < end:
            self._server.listen(POLL_SECONDS)

    def _wait_idle(self, limits: JobLimits) -> Verdict | None:
        """Wait until the process that children are forked from is ready, as far as the user and the deadline allow."""
        server, patient_until = self._server, CLOCK.now() + GRACE_SECONDS

        def is_idle() -> bool:
            is_late = server.state is ServerState.RUNNING and CLOCK.now() >= patient_until
            if server.state is ServerState.LOST or is_late:
                raise LostError("it did not answer")
            return server.state is ServerState.IDLE

        if server.state in {ServerState.LOADING, ServerState.OPENING}:
            return self._wait_beginning("opening", limits, is_idle)
        return self._wait(limits.kill_at, is_idle)

    def _wait(self, end: float | None, is_done: Callable[[], bool]) -> Verdict | None:
        while not is_done():
            if self.interrupt.asked:
                return "interrupted"
            if end is not None and CLOCK.now() >= end:
                return "deadline"
            self._server.listen(POLL_SECONDS)
        return None

    def _replace(self, reason: str) -> None:
        """Start the process that children are forked from again, but not if the user ended the run, nor too often."""
        self._server.close()
        self.interrupt.check()
        if self._starts == MOST_STARTS:
            raise TunerError(
                f"{LOST} was lost {MOST_STARTS} times in a row, at last because {reason}: remove the plugin that ends "
                "or stops it, or look for what kills processes on this device, and continue with --resume"
            )
        self._starts, self._started = self._starts + 1, CLOCK.now()
        self._server = ForkServer(self._start)
