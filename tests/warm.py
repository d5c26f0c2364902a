"""Processes that trials run in, forked from one that has imported the libraries: each starts in no time.

Importing PyTorch and its compiler takes a second or two of processor time, and tests start such a process more than a
hundred times. What runs in it is the same; tests of the processes themselves and of their memory start real ones.

Run as ``python -m tests.warm FD``, it imports, then forks for each request on its socket.
"""

import atexit
import gc
import importlib
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from tuner.backends.onnxruntime import OrtBackend
from tuner.process_memory import HUGE_PAGES
from tuner.search.processes import child, server

#: Environment variables that a process reads when it starts, or when it imports.
READ_AT_START = (
    "PYTHON",
    "OMP_",
    "OPENBLAS_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "MALLOC_",
    "GLIBC_",
    "LD_",
    "TORCH",
    "PYTORCH",
    "THP_",
)
MOST_BYTES = 1_000_000
SAME_FOR_ALL = {**server.PATIENT_THREADS, **HUGE_PAGES}


def written(_: int) -> None:
    """Return without waiting for the disk: tests kill processes, which lose nothing written; a power cut would."""


os.fsync = os.fdatasync = written  # type: ignore[assignment]


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
        self._nursery = nursery()
        request = pickle.dumps((dict(environment), str(folder or Path.cwd()), list(module)))
        socket.send_fds(self._nursery, [request], list(descriptors))
        self.pid = int(self._nursery.recv(32))
        self._ended = os.pidfd_open(self.pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code.

        Raises:
            subprocess.TimeoutExpired: It has not ended in time.
        """
        if self._code is None:
            poll = select.poll()
            poll.register(self._ended, select.POLLIN)
            if not poll.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            os.close(self._ended)
            self._nursery.send(pickle.dumps(self.pid))
            self._code = int(self._nursery.recv(32))
        return self._code


def forked(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run a module, as ``python -m`` with some arguments does, in a process that is forked; return what it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error, open(os.devnull) as nothing:  # noqa: PTH123 - no file
        process = Forked((nothing.fileno(), out.fileno(), error.fileno()), env, cwd, arguments)
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
    return {
        name: value for name, value in environment.items() if name.startswith(READ_AT_START) and name != "PYTHONPATH"
    }


@cache
def started_with() -> dict[str, str]:
    """Return the environment of the process to fork from."""
    return {**SAME_FOR_ALL, **os.environ}


@cache
def nursery() -> socket.socket:
    """Start the process to fork from; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=started_with(),
            cwd=Path(__file__).parent.parent,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def warm_up() -> None:
    """Import what processes would, and what exports import and build at the first one."""
    for library in OrtBackend.preload:
        importlib.import_module(library)
    import torch

    from tuner.backends.torch import compiler
    from tuner.backends.torch.onnx.inference import write_onnx

    compiler.load()
    importlib.import_module(
        "tqdm"
    ).tqdm.monitor_interval = 0  # or an export starts a thread, which a fork would not have
    state = torch.get_rng_state()
    with tempfile.TemporaryDirectory() as folder:
        write_onnx(torch.nn.Linear(1, 1), torch.zeros(2, 1), Path(folder) / "model.onnx", ["logits"])
    torch.set_rng_state(state)
    gc.collect()
    gc.freeze()
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        raise SystemExit(f"the process to fork from has {threads} threads: a fork has one of them")


def serve(requests: socket.socket) -> None:
    """Fork, or wait for what was forked, until there is nobody to ask for it."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not message:
            return
        asked = pickle.loads(message)  # noqa: S301 - from the tests
        if isinstance(asked, int):
            _, status = os.waitpid(asked, 0)
            requests.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        environment, folder, module = asked
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                requests.close()
                become(descriptors, environment, folder)
                if module:
                    code = ran(module)
                else:
                    child.main(descriptors[0], os.getppid())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(str(pid).encode())


def ran(module: Sequence[str]) -> int:
    """Run a module with some arguments; return the exit code."""
    sys.argv = list(module)
    try:
        runpy.run_module(module[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


def become(descriptors: Sequence[int], environment: Mapping[str, str], folder: str) -> None:
    """Take over what a started process would have been given."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, descriptor in enumerate((nothing, *descriptors[1:])):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])))
