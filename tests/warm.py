"""Processes that trials run in, forked from one that has imported the libraries: each starts in no time.

Importing PyTorch and its compiler takes a second or two of processor time, and tests start such a process more than a
hundred times. What runs in it is the same; tests of the processes themselves and of their memory start real ones.
"""

import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver, get_context, reduction
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tuner.machine.process_memory import HUGE_PAGES
from tuner.search.processes import child, server

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", "tests.warm_up"])
#: Environment variables that a process reads when it starts, or when it imports.
READ_AT_START = re.compile(r"(PYTHON|OMP|OPENBLAS|GOMP|KMP|MKL|MALLOC|GLIBC|LD|TORCH|PYTORCH|THP)_?")
SAME_FOR_ALL = {**server.PATIENT_THREADS, **HUGE_PAGES}


def written(_: int) -> None:
    """Return without waiting for the disk: tests kill processes, which lose nothing written; a power cut would."""


os.fsync = os.fdatasync = written  # type: ignore[assignment]


def fork(target: Callable[..., object], *arguments: object) -> BaseProcess:
    """Start a process that calls a function."""
    root = str(Path(__file__).parent.parent)
    with patch.dict(os.environ, {**started_with(), "PYTHONPATH": os.pathsep.join([root, *sys.path])}):
        forkserver.ensure_running()
    process = CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


class Descriptor(int):
    """A file descriptor that is sent to the process that it is pickled for."""

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _received, (reduction.DupFd(int(self)),)


def _received(descriptor: Any) -> int:
    return int(descriptor.detach())


class Forked:
    """What `subprocess.Popen` returns, as far as a `ForkServer` uses it, of a process that is forked.

    Args:
        descriptors: Its control socket, standard output and standard error.
        environment: Its environment.
        folder: Its working directory; this process's by default.
        module: The module that it runs, and arguments; that of a `ForkServer` by default.
    """

    def __init__(
        self,
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        folder: Path | None = None,
        module: Sequence[str] = (),
    ) -> None:
        given = [Descriptor(descriptor) for descriptor in descriptors]
        self._process = fork(run, given, dict(environment), folder or Path.cwd(), module)
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code.

        Raises:
            subprocess.TimeoutExpired: It has not ended in time.
        """
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return code


def run(descriptors: Sequence[int], environment: Mapping[str, str], folder: Path, module: Sequence[str]) -> None:
    """Be what a started process would have been."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, descriptor in enumerate((nothing, *descriptors[1:])):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:1] = [str(folder), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    if module:
        sys.argv = list(module)
        runpy.run_module(module[0], run_name="__main__", alter_sys=True)
    else:
        child.main(descriptors[0], os.getppid())


def forked(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run a module, as ``python -m`` with some arguments does, in a process that is forked; return what it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error, tempfile.TemporaryFile() as none:
        process = Forked((none.fileno(), out.fileno(), error.fileno()), env, cwd, arguments)
        code = process.wait(timeout)
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read(), error.read())


class Processes:
    """The module `subprocess` for `tuner.search.processes.server`."""

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired

    @staticmethod
    def Popen(  # noqa: N802 - its name there
        command: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], stdin: int, stdout: int | None
    ) -> "Forked | subprocess.Popen[bytes]":
        """Fork a process, or start one where its environment differs in what is read at the start."""
        own = {**SAME_FOR_ALL, **os.environ}
        if read_at_start(env) != read_at_start(started_with()) or read_at_start(own) != read_at_start(env):
            return subprocess.Popen(command, pass_fds=pass_fds, env=env, stdin=stdin, stdout=stdout)
        return Forked((*pass_fds, 1 if stdout is None else stdout, 2), env)


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that counts when a process starts, but for what a fork can follow."""
    names = {name for name in environment if READ_AT_START.match(name)} - {"PYTHONPATH"}
    return {name: environment[name] for name in names}


@cache
def started_with() -> dict[str, str]:
    """Return the environment of the process to fork from."""
    return {**SAME_FOR_ALL, **os.environ}
