"""A MariaDB server of one's own, on a free local port, in a temporary folder: for tests and benchmarks.

Its programs are the system's, or below the folder that ``TUNER_MARIADB`` names, where Debian's packages were unpacked:

    apt-get download mariadb-server-core mariadb-client-core libaio1 libnuma1 liburing2
    for file in *.deb; do dpkg-deb -x "$file" FOLDER; done
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VARIABLE = "TUNER_MARIADB"
STARTING_SECONDS = 60
PASSWORD = "s3cret-of-the-test"  # noqa: S105 - of a server that nobody else knows
#: Nothing here is worth a wait for the disk, and the tests' machines are small.
SETTINGS = (
    *("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--innodb-buffer-pool-size=32M"),
    *("--max-connections=200", "--skip-log-bin", "--bind-address=127.0.0.1"),
)
USER = "CREATE DATABASE tuner; CREATE USER tuner@'127.0.0.1' IDENTIFIED BY '{}'; GRANT ALL ON *.* TO tuner@'127.0.0.1';"


def programs() -> Path | None:
    """Return the folder that MariaDB was installed below, such as ``/usr``; None where there is none."""
    given = os.environ.get(VARIABLE)
    found = shutil.which("mariadbd", path=f"{given}/usr/sbin" if given else f"{os.environ.get('PATH', '')}:/usr/sbin")
    return None if found is None else Path(found).resolve().parents[1]


class Server:
    """A server, which can be stopped and started again.

    Args:
        folder: Where it keeps its files.
        base: Folder that it was installed below.
    """

    def __init__(self, folder: Path, base: Path) -> None:
        self._folder, self._base = folder, base
        self._process: subprocess.Popen[bytes] | None = None
        libraries = [str(one) for part in (base, base.parent) for one in part.glob("lib/*-linux-gnu")]
        self._settings: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}}
        if os.geteuid() == 0:  # it refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._settings |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        made = ("--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db")
        self._call("bin/mariadb-install-db", *made, f"--basedir={base}", f"--datadir={folder / 'data'}").wait()
        (folder / "user.sql").write_text(USER.format(PASSWORD).replace("; ", ";\n"))

    @property
    def url(self) -> str:
        """Address of its database."""
        return f"mysql://tuner:{PASSWORD}@127.0.0.1:{self.port}/tuner"

    def start(self) -> None:
        """Start it, and wait until it answers; the first time it makes its database and its user.

        Raises:
            RuntimeError: It does not start.
        """
        first = self._folder / "user.sql"
        places = (f"--datadir={self._folder / 'data'}", f"--socket={self._folder / 'socket'}", f"--port={self.port}")
        named = (f"--basedir={self._base}", *((f"--init-file={first}",) if first.exists() else ()))
        self._process = self._call("sbin/mariadbd", "--no-defaults", *named, *places, *SETTINGS)
        end = time.monotonic() + STARTING_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"MariaDB does not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        first.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop it: whoever is connected is cut off."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return bool(connection.recv(1))
        except OSError:
            return False

    def _call(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen([self._base / program, *arguments], stdout=log, stderr=log, **self._settings)


@contextmanager
def mariadb() -> Iterator[Server]:
    """Give a server that runs until the end of the block.

    Raises:
        FileNotFoundError: MariaDB is not installed.
    """
    base = programs()
    if base is None:
        raise FileNotFoundError(
            f"MariaDB is not installed: apt install mariadb-server, or name its folder by {VARIABLE}"
        )
    folder = Path(tempfile.mkdtemp(prefix="tuner-mariadb-"))
    try:
        server = Server(folder, base)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
