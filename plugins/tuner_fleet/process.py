"""A worker of a fleet as a process: what is started on a device, and what it says, line by line."""

import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue


@dataclass(slots=True)
class Worker:
    """A worker that is started, and what becomes of it.

    Attributes:
        worker: Its number, from 1.
        folder: Its run's folder, on its device.
        device: The device's name; empty before it has begun.
        exit_code: Its process's; None where that did not end by itself.
        last: What it said last.
    """

    worker: int
    folder: str
    device: str = ""
    exit_code: int | None = None
    last: str = "waits for a free core"


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
class News:
    """What a worker said since it was asked before.

    Attributes:
        device: Name of the device that it runs on.
        lines: The lines.
        exit_code: Its process's; None while that runs.
    """

    device: str
    lines: tuple[str, ...]
    exit_code: int | None


class Process:
    """A worker's process, on its device. No call waits for it, except `end`."""

    def __init__(self, part: Part) -> None:
        self._lines = SimpleQueue[str]()
        self._process: subprocess.Popen[str] | None = None
        if not Path(part.folder).is_dir():
            self._lines.put(
                f"tuner: {part.folder} is not on {platform.node()}: start from a folder that every device has"
            )
            return
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuner", *part.arguments],  # -P: no module of the current folder
            cwd=part.folder,
            env={**os.environ, **part.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def news(self) -> News:
        """Return what it said since the last call."""
        code: int | None = 1
        if self._process is not None:
            code = None if self._reader.is_alive() else self._process.wait()
        lines = [self._lines.get() for _ in range(self._lines.qsize())]
        return News(platform.node(), tuple(lines), code)

    def end(self) -> None:
        """End it as Ctrl-C does: its trial is put back."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        with process:
            for line in process.stderr or ():
                self._lines.put(line.rstrip())
        if process.returncode < 0:
            self._lines.put(f"ended by {signal.Signals(-process.returncode).name}; what was finished is kept")
