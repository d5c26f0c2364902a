"""The parent's handle on the process that children are forked from. It runs the task's code, which may end it."""

import json
import math
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from tuner.errors import TunerError
from tuner.machine.process_memory import HUGE_PAGES
from tuner.search.processes.channel import Channel, pack
from tuner.search.processes.messages import ANOTHER, Failure, Job, Start, build
from tuner.search.processes.process_tree import descendants, end_descendants, end_marked, kill, kill_group, state
from tuner.task.info import TaskOutline

#: OpenMP's threads wait by spinning; next to another busy process that costs up to twenty times the work. OpenBLAS's do
#: too, and to solve for a head two of them take longer than one even on idle cores.
PATIENT_THREADS = {"GOMP_SPINCOUNT": "30000", "OPENBLAS_NUM_THREADS": "1"}
MARK = "TUNER_PROCESSES"
#: How long a stopped process is waited for: who stops a whole run continues its processes one after the other.
STOPPED_SECONDS = 0.5
CLOSING_SECONDS = 10.0


class ServerState(Enum):
    """What the process that children are forked from is doing."""

    #: It loads the task's file.
    LOADING = auto()
    #: It loads the libraries and the task's model and data.
    OPENING = auto()
    IDLE = auto()
    #: It was asked for a child, and has not forked it yet.
    FORKING = auto()
    #: It waits for its child to end.
    RUNNING = auto()
    #: It is of no use: it has ended, was stopped, or may have half of a job.
    LOST = auto()


#: What it is doing once it has sent a message.
AFTER = {
    "looked": ServerState.LOADING,
    "task": ServerState.OPENING,
    "opened": ServerState.IDLE,
    "forked": ServerState.RUNNING,
    "exited": ServerState.IDLE,
}


class LostError(TunerError):
    """The process that children are forked from has ended, or is stopped."""


class ForkServer:
    """A process with the libraries in memory and the task opened, which forks a child for every job.

    ``child`` and ``exit_code`` are those of the last job; ``excluded`` are the processes that were started before it.
    """

    def __init__(self, start: Start, looked: Callable[[int, int], object] | None = None) -> None:
        self._looked = looked
        self.state = ServerState.LOADING
        self.task: TaskOutline | None = None
        self.child = 0
        self.exit_code: int | None = None
        self.excluded: frozenset[int] = frozenset()
        self._mark = f"{MARK}={os.getpid()}-{secrets.token_hex(8)}"
        self._stopped_since = math.inf
        ours, theirs = socket.socketpair()
        name, _, value = self._mark.partition("=")
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # in the process too, until it unblocks it
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tuner.search.processes.child", str(theirs.fileno()), str(os.getpid())],
                    pass_fds=[theirs.fileno()],
                    env={**PATIENT_THREADS, **HUGE_PAGES, **os.environ, name: value},
                    stdin=subprocess.DEVNULL,
                    stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else None,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._channel = Channel(ours)
        self._channel.send(pack(pickle.dumps(start)))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def reopen(self, start: Start, looked: Callable[[int, int], object] | None = None) -> None:
        """Let the process, which is idle, open another task in place of its own: it has loaded the libraries."""
        self._looked, self.task, self.state = looked, None, ServerState.LOADING
        self._channel.send(ANOTHER + pack(pickle.dumps(start)))

    def ask(self, job: Job, descriptor: int) -> None:
        """Send a job, and the descriptor that it is to report to."""
        self.state, self.child, self.exit_code = ServerState.FORKING, 0, None
        self.excluded = frozenset(descendants(self.pid))
        self._channel.send(pack(pickle.dumps((job.backend, job.plan, job.file_bytes, pickle.dumps(job)))), descriptor)

    def listen(self, seconds: float) -> None:
        """Take in what the process says, and wait for that for so long at most; raise what opening the task raised."""
        try:
            messages = self._channel.listen(seconds)
        except EOFError:
            raise LostError("it has ended") from None
        if messages is None:
            now = time.monotonic()
            self._stopped_since = min(self._stopped_since, now) if state(self.pid) == "T" else math.inf
            if now - self._stopped_since >= STOPPED_SECONDS:
                raise LostError("it is stopped")
        for message in messages or ():
            kind, value = json.loads(message)
            if kind == "failure":
                raise Failure(**value).error_of_opening()
            if kind == "looked" and self._looked is not None:
                self._looked(*map(int, value))
            elif kind == "task":
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
            with suppress(subprocess.TimeoutExpired):  # of a process that a fork of this one has started
                self._process.wait(CLOSING_SECONDS)
        end_marked(self._mark)
        self._channel.close()

    def exit_status(self, seconds: float) -> int | None:
        """Return the exit code of the process itself; None where it has none after so many seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
