"""A local plugin whose backend trains once as PyTorch's does, and then as ``MISDEED`` says: for `limits/deadline.py`.

Like every plugin it loads no tensor library when it is imported. All that grows has a bound, so that a guard that
fails costs a run and not the machine: 1,000 processes, 4 GB, 4 GB on disk.
"""

import mmap
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

import tuner_closed_form
from benchmarks.lib.delegate import Delegate
from tuner.backends.base import Backend, Session, Trial
from tuner.backends.extensions import Extensions
from tuner.backends.lowering import Lowering
from tuner.backends.torch.backend import TorchBackend
from tuner.machine.process_memory import PeakMeter
from tuner.plugin.hookspecs import hookimpl
from tuner.results.records.trial import Outcome
from tuner.task import Task

WELL = 1  # trials before the first misdeed
TRAINS = "none, it trains"
CHUNK_BYTES, PAUSE, MOST_CHUNKS = 10_000_000, 0.01, 400  # 1 GB/s


def sleep(_: Trial) -> None:
    """Sleep, whatever is asked."""
    while True:
        time.sleep(3600)


def ignore_signals(trial: Trial) -> None:
    """Sleep, deaf to every signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    sleep(trial)


def spin(_: Trial) -> None:
    """Compute for years without giving other threads a turn."""
    re.fullmatch("(a+)+", "a" * 60 + "b")


def fork(trial: Trial) -> None:
    """Double the processes every 100 ms, each in a session of its own."""
    for _ in range(10):
        time.sleep(0.1)
        if os.fork() == 0:
            os.setsid()
    sleep(trial)


def allocate(trial: Trial) -> None:
    """Take 1 GB a second."""
    held: list[object] = []
    while len(held) < MOST_CHUNKS:
        held.append(np.ones(CHUNK_BYTES, np.uint8))
        time.sleep(PAUSE)
    sleep(trial)


def allocate_in_a_child(trial: Trial) -> None:
    """Take 1 GB a second in a process of its own session."""
    if os.fork() == 0:
        os.setsid()
        allocate(trial)
    sleep(trial)


def share_memory(trial: Trial) -> None:
    """Take 1 GB of shared memory in a second."""
    held = mmap.mmap(-1, 1_000_000_000)
    for _ in range(100):
        held.write(b"1" * CHUNK_BYTES)
        time.sleep(PAUSE)
    sleep(trial)


def write(trial: Trial) -> None:
    """Write 4 GB to a file."""
    trial.weights.parent.mkdir(parents=True, exist_ok=True)
    with trial.weights.open("wb", 0) as file:
        for _ in range(400):
            file.write(b"1" * CHUNK_BYTES)


def chatter(_: Trial) -> None:
    """Print without end."""
    while True:
        print("again and again " * 64)
        print("again and again " * 64, file=sys.stderr)


def stop(_: Trial) -> None:
    """Stop itself, again and again."""
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


def stop_the_server(_: Trial) -> None:
    """Stop the process it was forked from, and leave."""
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(0)


def kill_the_server(trial: Trial) -> None:
    """Kill the process it was forked from."""
    os.kill(os.getppid(), signal.SIGKILL)
    sleep(trial)


def half_a_message(trial: Trial) -> None:
    """Begin a message."""
    _pipe().send(b"\0\0\0\0\0\0\1\0half of it")
    sleep(trial)


def long_text(_: Trial) -> None:
    """Raise 100 MB of text."""
    raise ValueError("much\n" * 20_000_000)


def leave(_: Trial) -> None:
    """End the process as if all were well."""
    os._exit(0)


def nothing(trial: Trial) -> Outcome:
    """Train nothing, at once."""
    trial.weights.parent.mkdir(parents=True, exist_ok=True)
    trial.weights.write_bytes(b"")
    values = {"local_accuracy": 0.5, "global_accuracy": 0.5, "train_seconds": 0.01, "peak_bytes": 1e6}
    return Outcome(values)


MISDEEDS: Mapping[str, Callable[[Trial], Outcome | None]] = {
    "sleeps": sleep,
    "spins in C": spin,
    "ignores signals": ignore_signals,
    "forks": fork,
    "allocates": allocate,
    "allocates in a child": allocate_in_a_child,
    "shares memory": share_memory,
    "writes": write,
    "prints": chatter,
    "stops itself": stop,
    "stops the server": stop_the_server,
    "kills the server": kill_the_server,
    "half a message": half_a_message,
    "100 MB of text": long_text,
    "leaves": leave,
    "nothing": nothing,
}


class HostileBackend(TorchBackend):
    """PyTorch's backend, until it turns."""

    name = "hostile"

    def open(self, task: Task, extensions: Extensions) -> Session:
        """Open the task in a session that misbehaves."""
        return HostileSession(super().open(task, extensions))


class HostileSession(Delegate):
    """Trains once, then misbehaves."""

    def train(self, trial: Trial) -> Outcome:
        """Train, or do as the environment says."""
        if int(trial.weights.parent.name) < WELL or os.environ["MISDEED"] == TRAINS:
            return super().train(trial)
        trial.report({"resting_bytes": PeakMeter().resting})
        return MISDEEDS[os.environ["MISDEED"]](trial) or Outcome({})


def _pipe() -> socket.socket:
    """Return the job's connection to the parent."""
    names = [int(path.name) for path in Path("/proc/self/fd").iterdir() if path.is_socket()]
    pipe = socket.socket(fileno=max(names))
    pipe.settimeout(None)
    return pipe


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Solve for heads as PyTorch's backend does."""
    return tuner_closed_form.tuner_lowerings("torch") if backend == HostileBackend.name else {}


@hookimpl
def tuner_backends() -> Iterable[Backend]:
    """Offer the backend that misbehaves."""
    return [HostileBackend()]
