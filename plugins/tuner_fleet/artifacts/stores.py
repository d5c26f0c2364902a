"""Optuna's artifact stores: a folder, or a bucket of an S3-compatible store; what goes wrong is an error of one line.

Endpoint, region, keys and certificates are those of boto3's own variables and files: none passes through `tuner`.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from stat import S_IWGRP
from typing import BinaryIO
from uuid import uuid4

from optuna.artifacts import Boto3ArtifactStore, FileSystemArtifactStore
from optuna.artifacts.exceptions import ArtifactNotFound

from tuner.errors import RunError, TunerError, disk_error, first_line, missing_extra
from tuner.files import private_file, private_folder, remove_parts
from tuner.printable import one_line
from tuner_fleet.address import HIDDEN
from tuner_fleet.artifacts.place import KEYS, Bucket

#: Seconds for a connection and for each answer; how often a request is made, with seconds in between.
CONNECT_SECONDS, ANSWER_SECONDS, TRIES = 5, 10, 3
#: What boto3 quotes of an address or a header may hold a key: it is not shown.
QUOTED = re.compile(r"\S*(?:://|@)\S*|b'.*'")
#: What to look at where a bucket cannot be used.
WAY_OUT = f"see that the server runs, and correct AWS_ENDPOINT_URL_S3, {KEYS}, or ~/.aws"


class FolderStore(FileSystemArtifactStore):
    """A folder.

    Args:
        folder: Which.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Write a file, whole or not at all, for whoever may write into the folder."""
        path = self._folder / artifact_id
        mode = 0o660 if self._folder.stat().st_mode & S_IWGRP else 0o600
        remove_parts(path)  # of a session that was killed: nobody else writes this file
        with private_file(path, durable=False, mode=mode) as part, part.open("wb") as file:
            shutil.copyfileobj(content_body, file)


class BucketStore(Boto3ArtifactStore):
    """A bucket, or a part of one.

    Args:
        bucket: Which.

    Raises:
        TunerError: boto3 is not installed, or its variables name no server.
    """

    def __init__(self, bucket: Bucket) -> None:
        try:
            from boto3.session import Session
            from botocore.config import Config
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
        retries = {"total_max_attempts": TRIES, "mode": "standard"}
        config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=ANSWER_SECONDS, retries=retries)
        with explained(bucket):
            super().__init__(bucket.name, Session().client("s3", config=config))
        self._prefix = bucket.prefix

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open an object."""
        return super().open_reader(self._prefix + artifact_id)

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Write an object, without the threads of Optuna's own way, which the end of the process waits for."""
        self.client.put_object(Bucket=self.bucket, Key=self._prefix + artifact_id, Body=content_body)

    def remove(self, artifact_id: str) -> None:
        """Remove an object, if there is one."""
        super().remove(self._prefix + artifact_id)


Store = FolderStore | BucketStore


def open_store(place: Path | Bucket) -> Store:
    """Open an artifact store.

    Raises:
        TunerError: It cannot be opened.
    """
    return FolderStore(place) if isinstance(place, Path) else BucketStore(place)


def open_writable(place: Path | Bucket) -> Store:
    """Open an artifact store, see that it can be written, and make a folder where there is none, for the user alone.

    Raises:
        TunerError: It cannot.
    """
    if isinstance(place, Path) and not place.is_dir():
        private_folder(place)
    store, probe = open_store(place), f"probe-{uuid4()}"
    with explained(place):
        store.write(probe, BytesIO())
        store.remove(probe)
    return store


@contextmanager
def explained(place: Path | Bucket) -> Iterator[None]:
    """Raise what boto3 or the system raises in a block as an error of one line.

    Raises:
        TunerError: The line.
        ArtifactNotFound: As Optuna's stores raise it.
    """
    try:
        yield
    except (TunerError, ArtifactNotFound):
        raise
    except Exception as error:  # noqa: BLE001 - of boto3, of urllib3 and of the system, with no common base
        known, line = disk_error(error) if isinstance(error, OSError) else None, one_line(first_line(error))
        if isinstance(place, Bucket):
            raise known or RunError(f"{place} cannot be used ({QUOTED.sub(HIDDEN, line)}): {WAY_OUT}") from None
        raise known or RunError(f"{place} cannot be used ({line}): see that it is there") from None
