"""The parent's handle on the process that children are forked from. It runs the task's code: it is not trusted."""

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
from typing import Any, Literal

from tuner.errors import TunerError
from tuner.process_memory import HUGE_PAGES
from tuner.search.processes.family import children, descendants, end_descendants, end_marked, kill, kill_group, state
from tuner.search.processes.frames import EXITED, FAILURE, FORKED, OPENED, TASK, Channel, FrameError, packed
from tuner.search.processes.job_memory import names_in_memory
from tuner.search.processes.messages import Job, Start
from tuner.search.processes.wire import error_from, task_from
from tuner.task.info import TaskOutline

#: OpenMP's threads wait by spinning; next to another busy process that costs up to twenty times the work. OpenBLAS's do
#: too, and to solve for a head two of them take longer than one even on idle cores.
PATIENT_THREADS = {"GOMP_SPINCOUNT": "30000", "OPENBLAS_NUM_THREADS": "1"}
MARK = "TUNER_PROCESSES"
#: How long a stopped process is waited for: who stops a whole run continues its processes one after the other.
STOPPED_SECONDS = 0.5
#: Loading the task; opening it; waiting for a job; about to fork for one; waiting for its child to end; of no use.
Phase = Literal["loading", "opening", "idle", "forking", "running", "lost"]


class LostError(TunerError):
    """The process that children are forked from has ended, is stopped, or sends an invalid message."""


class ForkServer:
    """A process with the libraries in memory and the task opened, which forks a child for every job.

    Attributes:
        phase: What it is doing.
        task: The task; None until it is loaded.
        child: Process id of the last child; None where that is none of its children.
        exit_code: Exit code of the last child; None until it has ended.
        spare: Processes that it had started before the last job.
        files: Names below ``/dev/shm`` before the last job.

    Args:
        start: What it prepares.
    """

    def __init__(self, start: Start) -> None:
        self.phase: Phase = "loading"
        self.task: TaskOutline | None = None
        self.child: int | None = None
        self.exit_code: int | None = None
        self.spare: frozenset[int] = frozenset()
        self.files: frozenset[str] = frozenset()
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
        self._socket, self._channel = ours, Channel(ours)
        self._channel.post(packed(pickle.dumps(start)))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, job: Job) -> None:
        """Begin to send a job; `hand_over` completes it."""
        self.phase, self.child, self.exit_code = "forking", None, None
        self.spare, self.files = frozenset(descendants(self.pid)), names_in_memory()
        self._channel.post(packed(pickle.dumps((job.backend, job.plan, job.file_bytes))))
        self._channel.post(packed(pickle.dumps(job)))

    def hand_over(self, descriptor: int) -> bool:
        """Send the descriptor that the job is to report to; return whether it was sent.

        Raises:
            LostError: The process has ended.
        """
        self._channel.send()
        if self._channel.unsent_bytes:
            return False
        try:
            socket.send_fds(self._socket, [b"d"], [descriptor])
        except BlockingIOError:
            return False
        except OSError:
            raise LostError("it has ended") from None
        return True

    def listen(self, seconds: float) -> None:
        """Take in what the process says, and wait for that for so long at most.

        Raises:
            LostError: It has ended, is stopped, or sends an invalid message.
            TunerError: It cannot open the task; one line.
        """
        try:
            frames = self._channel.listen(seconds)
        except (EOFError, FrameError):
            raise LostError("it has ended") from None
        for kind, content in frames:
            try:
                self._take_in(kind, content)
            except FrameError:
                raise LostError("it sent an invalid message") from None
        if not frames:
            self._notice_a_stop()

    def end_job(self) -> None:
        """Kill the last child and all that it has started."""
        if self.child is not None:
            kill_group(self.child)
        end_descendants(self.pid, self.spare)

    def close(self) -> None:
        """End the process and all that it has started, and those who have left its family too."""
        self.phase = "lost"
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

    def _take_in(self, kind: bytes, content: bytes) -> None:
        if kind == FAILURE and self.phase in {"loading", "opening"}:
            raise error_from(content)
        expected: dict[tuple[str, bytes], Phase] = {
            ("loading", TASK): "opening",
            ("opening", OPENED): "idle",
            ("forking", FORKED): "running",
            ("running", EXITED): "idle",
        }
        following = expected.get((self.phase, kind))
        if following is None:
            raise LostError("it sent an invalid message")
        if kind == TASK:
            self.task = task_from(content)
        elif kind != OPENED:
            try:
                number = int(content)
            except ValueError:
                raise LostError("it sent an invalid message") from None
            if kind == FORKED:  # no other process is ever killed at its word
                self.child = number if number in children(self.pid) else None
            else:
                self.exit_code = number
        self.phase = following

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
