"""Run a module as another operating system would: `python tests/other_system.py win32|darwin MODULE ARGUMENTS`.

On Linux, Python loses what it lacks on macOS or Windows, and what Windows forbids is forbidden. Libraries are imported
before, as theirs are other builds there. `os.name` stays, as pathlib depends on it: paths keep their slashes.
"""

import ctypes
import fcntl
import importlib
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import filelock

#: What decides by the system when it is imported: libraries, and modules of Python's own.
LIBRARIES = (
    "asyncio",
    "cyclopts.completion.detect",
    "http.server",
    "numpy.random",
    "onnxruntime",
    "PIL.Image",
    "platformdirs",
    "psutil",
    "pydantic.type_adapter",
    "rich.console",
    "rich.progress",
    "safetensors.numpy",
    "uuid",
    "zipfile",
)
LACKED: dict[ModuleType, str] = {
    os: "sched_getaffinity sched_setaffinity sched_getscheduler sched_setscheduler sched_param posix_fallocate "
    "memfd_create pidfd_open eventfd getrandom",
    time: "CLOCK_BOOTTIME",
    select: "epoll",
    socket: "AF_NETLINK AF_PACKET",
}
LACKED_ON_WINDOWS: dict[ModuleType, str] = {
    os: "geteuid getuid getegid getgid getgroups fork forkpty killpg getpgid getpgrp setsid wait3 wait4 waitid fchmod "
    "fchown chown lchown pread preadv pwrite pwritev mkfifo mknod statvfs fstatvfs uname getloadavg "
    "nice getpriority setpriority O_CLOEXEC O_NONBLOCK O_NOCTTY O_DIRECTORY O_NOFOLLOW O_SYNC",
    signal: "SIGKILL SIGALRM SIGSTOP SIGCONT SIGHUP SIGCHLD SIGUSR1 SIGUSR2 SIGQUIT setitimer getitimer ITIMER_REAL "
    "alarm pthread_sigmask pthread_kill sigwait pause",
    time: "clock_gettime tzset",
    select: "poll",
    socket: "AF_UNIX",
}
MODULES = {"darwin": (), "win32": ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")}
OF_LINUX = ("/proc", "/sys", "/dev/shm")  # noqa: S108 - nothing is written there
#: The real functions, of which `as_windows` replaces some.
LISTDIR, READLINK, IS_FOLDER = os.listdir, os.readlink, os.path.isdir


def take_away(system: str) -> None:
    """Take away what a system lacks."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for lacked in (LACKED, LACKED_ON_WINDOWS) if system == "win32" else (LACKED,):
        for module, names in lacked.items():
            for name in names.split():
                vars(module).pop(name, None)
    for name in ("inotify_simple", *MODULES[system]):
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it then fails
    warnings.filterwarnings("error", category=EncodingWarning, module=r"tuner\b")
    if system == "win32":
        as_windows()
    sys.addaudithook(no_file_of_linux)
    sys.platform = system


def no_file_of_linux(event: str, arguments: tuple[Any, ...]) -> None:
    """Find none of the files that Linux alone has, except for what is another build elsewhere."""
    if event in {"open", "os.listdir", "os.scandir"} and str(arguments[0]).startswith(OF_LINUX):
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if "/psutil/" in frame.f_code.co_filename or frame.f_code is open_files.__code__:
                return
            frame = frame.f_back
        raise FileNotFoundError(2, "this system has no such file", arguments[0])


def open_files() -> set[str]:
    """Return the files that this process has open, or in memory."""
    files = set()
    for name in LISTDIR("/proc/self/fd"):
        try:
            files.add(READLINK(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the one that lists them
            continue
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123 - paths are forbidden here
        return files | {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}


def unless_open(move: Callable[..., None]) -> Callable[..., None]:
    """Return a function that moves or removes files, unless they are open."""

    def checked(*paths: Any, **named: Any) -> None:
        real = [os.path.realpath(path) for path in paths]
        busy = [file for file in open_files() for path in real if f"{file}/".startswith(f"{path}/")]
        if busy or (move.__name__ == "rename" and os.path.lexists(paths[1])):
            raise PermissionError(13, "another process uses the file, or it exists", *busy[:1])
        move(*paths, **named)

    return checked


def as_windows() -> None:
    """Forbid to open a folder, to flush a file that is read, to load no library, and to move or remove an open file."""
    open_, fsync, load = os.open, os.fsync, ctypes.CDLL.__init__

    def open_file(path: Any, *arguments: Any, **named: Any) -> int:
        if IS_FOLDER(path):
            raise PermissionError(13, "Permission denied", path)
        return open_(path, *arguments, **named)

    def flush(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        fsync(descriptor)

    def load_library(self: ctypes.CDLL, name: Any, *arguments: Any, **named: Any) -> None:
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        load(self, name, *arguments, **named)

    os.open, os.fsync, ctypes.CDLL.__init__ = open_file, flush, load_library  # type: ignore[assignment,method-assign]
    for name in ("rename", "replace", "unlink", "remove", "rmdir"):
        setattr(os, name, unless_open(getattr(os, name)))
    filelock.FileLock = filelock.SoftFileLock  # the lock of Windows cannot be had here
    shutil._use_fd_functions = False  # type: ignore[attr-defined]


if __name__ == "__main__":
    _, name_, module_, *sys.argv[1:] = sys.argv
    take_away(name_)
    runpy.run_module(module_, run_name="__main__", alter_sys=True)
