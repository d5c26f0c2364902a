"""A PostgreSQL server of one's own, on a free local port, in a temporary folder: for tests and benchmarks.

Its programs are those of the package `pgserver`, or the system's. PostgreSQL refuses to run as root: there it runs as
the user ``nobody``.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

STARTING_SECONDS = 60
#: Nothing here is worth a wait for the disk, and the tests' machines are small.
SETTINGS = ("fsync=off", "shared_buffers=16MB", "max_connections=200", "unix_socket_directories=")


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; None where there are none."""
    package = find_spec("pgserver")
    if package is not None and package.origin is not None:
        found = Path(package.origin).parent / "pginstall" / "bin"
        if (found / "initdb").is_file():
            return found
    system = shutil.which("initdb")
    return None if system is None else Path(system).resolve().parent


class Server:
    """A server, which can be stopped and started again.

    Args:
        folder: Where it keeps its files.
        programs: Folder of its programs.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        self._process: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        options = ("--username=tuner", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
        self._call("initdb", "-D", str(folder / "data"), *options).wait()

    @property
    def url(self) -> str:
        """Address of its database."""
        return f"postgresql://tuner@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        self._process = self._call(
            "postgres", "-D", str(self._folder / "data"), "-h", "127.0.0.1", "-p", str(self.port), *settings
        )
        end = time.monotonic() + STARTING_SECONDS
        while self._call("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)).wait() != 0:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL does not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it at once: whoever is connected is cut off."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def _call(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments], cwd=self._folder, stdout=log, stderr=log, **self._user
            )


@contextmanager
def postgres() -> Iterator[Server]:
    """Give a server that runs until the end of the block.

    Raises:
        FileNotFoundError: PostgreSQL is not installed.
    """
    found = programs()
    if found is None:
        raise FileNotFoundError("PostgreSQL is not installed: pip install pgserver, or apt install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="tuner-postgres-"))
    try:
        server = Server(folder, found)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
