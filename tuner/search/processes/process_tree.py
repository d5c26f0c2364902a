"""The processes that a process has started, however far apart, and their end. Linux: read from ``/proc``."""

# ruff: noqa: PTH116, PTH123, PTH208 - read every 10 ms, and paths as objects take as long as the reading

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress

from tuner.errors import RunError
from tuner.units import format_bytes

#: How long processes that were killed may take to be gone.
END_SECONDS = 1.0
#: Address space that importing PyTorch and ONNX Runtime takes: a run began with 900 MB, and not with 700.
LEAST_ADDRESS_BYTES = 850_000_000
SYSTEMS = {"darwin": "macOS", "win32": "Windows"}
_KILL = 9  # signal.SIGKILL, which Windows does not name
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def require_system() -> None:
    """Check that trials can run on this system.

    Raises:
        RunError: It is not Linux, or this process may have too little of its address space for PyTorch.
    """
    if sys.platform != "linux":
        raise RunError(
            "tuning, and whatever else opens a task's model, needs Linux, which forks trials and counts their memory; "
            f"this is {SYSTEMS.get(sys.platform, sys.platform)}, where bundles predict and train again: use Linux (on "
            "Windows, WSL is one)"
        )
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_BYTES:
        raise RunError(
            f"the address space of this process is limited to {format_bytes(limit)} (ulimit -v), and PyTorch needs "
            f"{format_bytes(LEAST_ADDRESS_BYTES)}: give more; predicting, and training a bundle again, need less"
        )


def adopt_orphans() -> None:
    """Become the parent of every process that descends from this one and whose own parent has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int, number: int = _KILL) -> None:
    """Have this process sent a signal, 0 for none, when its parent ends; where that has ended already, leave now."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children(pid: int) -> list[int]:
    """Return the children of a process; those that have ended and were not waited for are among them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def descendants(pid: int, excluded: Collection[int] = ()) -> list[int]:
    """Return the children of a process, theirs, and so on, without excluded ones and what these have started."""
    found: dict[int, None] = {}
    pending = [pid]
    while pending:
        born = [child for child in children(pending.pop()) if child not in excluded and child not in found]
        found |= dict.fromkeys(born)
        pending += born
    return list(found)


def state(pid: int) -> str:
    """Return the state of a process as ``ps`` does: ``T`` is stopped, ``Z`` has ended; empty where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def kill(pid: int, number: int = _KILL) -> None:
    """Send a signal to a process that may have ended by itself."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(leader: int, number: int = _KILL) -> None:
    """Send a signal to a group of processes at once: none of them can start another meanwhile."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_descendants(pid: int, excluded: Collection[int] = ()) -> None:
    """Kill all that a process has started: they are stopped first, as they may start others meanwhile."""
    for number, done in ((signal.SIGSTOP, "TZX"), (signal.SIGKILL, "ZX")):
        until = time.monotonic() + END_SECONDS
        while found := descendants(pid, excluded):
            for child in found:
                kill(child, number)
            if all(state(child) in done for child in found) or time.monotonic() >= until:
                break  # what waits for a disk ends when it can
            time.sleep(0.001)


def bound_processes(more: int) -> None:
    """Let this process and its children start so many further processes and threads of the user; root has no bound."""
    import resource  # not on Windows

    if os.geteuid() == 0:
        return
    running = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.geteuid():
                running += len(os.listdir(f"/proc/{name}/task"))
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    bound = running + more if hard == resource.RLIM_INFINITY else min(hard, running + more)
    resource.setrlimit(resource.RLIMIT_NPROC, (bound, hard))


def end_marked(mark: str) -> None:
    """Kill every process that was started with a mark in its environment, wherever it has gone since."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    kill(int(name))
