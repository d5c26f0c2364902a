"""The parent's handle on the process that children are forked from. It runs the task's code, which may end it."""

import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from tuner.errors import TunerError
from tuner.process_memory import HUGE_PAGES
from tuner.search.processes.channel import Channel, MessageError, pack
from tuner.search.processes.messages import Failure, Job, Kind, Start, build, decode
from tuner.search.processes.process_tree import descendants, end_descendants, end_marked, kill, kill_group, state
from tuner.task.info import TaskOutline

#: OpenMP's threads wait by spinning; next to another busy process that costs up to twenty times the work. OpenBLAS's do
#: too, and to solve for a head two of them take longer than one even on idle cores.
PATIENT_THREADS = {"GOMP_SPINCOUNT": "30000", "OPENBLAS_NUM_THREADS": "1"}
MARK = "TUNER_PROCESSES"
#: How long a stopped process is waited for: who stops a whole run continues its processes one after the other.
STOPPED_SECONDS = 0.5


class ServerState(Enum):
    """What the process that children are forked from is doing.

    Attributes:
        LOADING: It loads the task's file.
        OPENING: It loads the libraries and the task's model and data.
        IDLE: It waits for a job.
        FORKING: It was asked for a child, and has not forked it yet.
        RUNNING: It waits for its child to end.
        LOST: It is of no use: it has ended, was stopped, or may have half of a job.
    """

    LOADING = "loading"
    OPENING = "opening"
    IDLE = "idle"
    FORKING = "forking"
    RUNNING = "running"
    LOST = "lost"


#: What it is doing once it has sent a message.
AFTER: dict[Kind, ServerState] = {
    "task": ServerState.OPENING,
    "opened": ServerState.IDLE,
    "forked": ServerState.RUNNING,
    "exited": ServerState.IDLE,
}


class LostError(TunerError):
    """The process that children are forked from has ended, or is stopped."""


class ForkServer:
    """A process with the libraries in memory and the task opened, which forks a child for every job.

    Attributes:
        state: What it is doing.
        task: The task; None until it is loaded.
        child: Process id of the last child.
        exit_code: Exit code of the last child; None until it has ended.
        excluded: Processes that it had started before the last job.

    Args:
        start: What it prepares.
    """

    def __init__(self, start: Start) -> None:
        self.state = ServerState.LOADING
        self.task: TaskOutline | None = None
        self.child = 0
        self.exit_code: int | None = None
        self.excluded: frozenset[int] = frozenset()
        self._mark = f"{MARK}={os.getpid()}-{secrets.token_hex(8)}"
        self._stopped_since: float | None = None
        ours, theirs = socket.socketpair()
        name, _, value = self._mark.partition("=")
        with theirs, _without_interrupts():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tuner.search.processes.child", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                env={**PATIENT_THREADS, **HUGE_PAGES, **os.environ, name: value},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else None,
            )
        self._channel = Channel(ours)
        self._channel.send(pack(pickle.dumps(start)))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, job: Job, descriptor: int) -> None:
        """Send a job, and the descriptor that it is to report to."""
        self.state, self.child, self.exit_code = ServerState.FORKING, 0, None
        self.excluded = frozenset(descendants(self.pid))
        self._channel.send(pack(pickle.dumps((job.backend, job.plan, job.file_bytes, pickle.dumps(job)))), descriptor)

    def listen(self, seconds: float) -> None:
        """Take in what the process says, and wait for that for so long at most.

        Raises:
            LostError: It has ended, or is stopped.
            TunerError: It cannot open the task; one line.
        """
        try:
            messages = self._channel.listen(seconds)
        except (EOFError, MessageError):
            raise LostError("it has ended") from None
        if messages is None:
            self._notice_a_stop()
        for message in messages or ():
            kind, value = decode(message)
            if kind == "failure":
                raise Failure(**value).error_of_opening()
            if kind == "task":
                self.task = build(TaskOutline, value)
            elif kind == "forked":
                self.child = value
            elif kind == "exited":
                self.exit_code = value
            self.state = AFTER[kind]

    def end_job(self) -> None:
        """Kill the last child and all that it has started."""
        if self.child:
            kill_group(self.child)
        end_descendants(self.pid, self.excluded)

    def close(self) -> None:
        """End the process and all that it has started, and those who have left its family too."""
        self.state = ServerState.LOST
        if self._process.poll() is None:
            end_descendants(self.pid)
            kill(self.pid)
            self._process.wait()
        end_marked(self._mark)
        self._channel.close()

    def exit_status(self, seconds: float) -> int | None:
        """Return the exit code of the process itself; None where it has none after so many seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _notice_a_stop(self) -> None:
        if state(self.pid) != "T":
            self._stopped_since = None
            return
        now = time.monotonic()
        self._stopped_since = self._stopped_since or now
        if now - self._stopped_since >= STOPPED_SECONDS:
            raise LostError("it is stopped")


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT: a process that is started meanwhile does not get it either, until it has prepared for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
