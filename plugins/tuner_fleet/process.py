"""A worker of a fleet as a process: what is started on a device, and how it ended."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.cli.options import note

INTERRUPTED = "interrupted; what was finished is kept"
#: Seconds after which it is asked again whether a process has ended: Ray cancels between two lines of Python.
POLL_SECONDS = 0.2


@dataclass(slots=True)
class Worker:
    """A worker that is started, and what becomes of it.

    Attributes:
        worker: Its number, from 1.
        folder: Its run's folder, on its device.
        device: The device's name; empty where it has not begun.
        exit_code: Its process's; None where that did not end by itself.
        last: What it said last.
    """

    worker: int
    folder: str
    device: str = ""
    exit_code: int | None = None
    last: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker is started with.

    Attributes:
        arguments: Those of the command ``tuner``.
        folder: Current folder, which every device must have.
        environment: Further variables: the study's address is one of them, as a list of processes shows no variables.
    """

    arguments: tuple[str, ...]
    folder: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended; see `Worker`."""

    device: str
    exit_code: int | None
    last: str


def work(part: Part) -> Ended:
    """Run a worker on this device, and pass on what it says; where Ray cancels this, end it as Ctrl-C does."""
    device = platform.node()
    if not Path(part.folder).is_dir():
        line = f"tuner: {part.folder} is not on {device}: start from a folder that every device has"
        note(line)
        return Ended(device, 1, line)
    said = [""]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tuner", *part.arguments],  # -P: no module of the current folder
        cwd=part.folder,
        env={**os.environ, **part.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    reader = threading.Thread(target=_pass_on, args=(process, said))
    reader.start()
    is_interrupted = False
    while process.poll() is None:
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:  # its trial is put back
            is_interrupted = True
            process.terminate()
    reader.join()
    if is_interrupted:
        return Ended(device, None, INTERRUPTED)
    if process.returncode < 0:
        said.append(f"ended by {signal.Signals(-process.returncode).name}; what was finished is kept")
    return Ended(device, process.returncode, said[-1])


def _pass_on(process: "subprocess.Popen[str]", said: list[str]) -> None:
    """Print what a process says, but for what to do next with a worker's folder; keep the last line."""
    with process:
        for line in process.stderr or ():
            if not line.startswith("next: "):
                said[:] = [line.rstrip()]
                note(said[0])
