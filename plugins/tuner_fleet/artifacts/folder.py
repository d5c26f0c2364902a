"""Optuna's artifact store in a folder; what goes wrong there is an error of one line."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from stat import S_IWGRP
from typing import BinaryIO
from uuid import uuid4

from optuna.artifacts import FileSystemArtifactStore

from tuner.errors import RunError, disk_error, first_line
from tuner.files import private_file, private_folder, remove_parts


class FolderStore:
    """A folder as Optuna's artifact store.

    Args:
        folder: Which.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._store = folder, FileSystemArtifactStore(folder)

    def check(self) -> None:
        """See that files can be written and removed; make the folder where there is none, for the user alone.

        Raises:
            TunerError: They cannot.
        """
        if not self._folder.is_dir():
            private_folder(self._folder)
        probe = f"probe-{uuid4()}"
        self.write(probe, BytesIO())
        self.remove(probe)

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open a file; raises as Optuna's, and as `explained`."""
        with self.explained():
            return self._store.open_reader(artifact_id)

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Write a file, whole or not at all, for whoever may write into the folder; raises as `explained`."""
        path = self._folder / artifact_id
        with self.explained():
            mode = 0o660 if self._folder.stat().st_mode & S_IWGRP else 0o600
            remove_parts(path)  # of a session that was killed: nobody else writes this file
            with private_file(path, durable=False, mode=mode) as part, part.open("wb") as file:
                shutil.copyfileobj(content_body, file)

    def remove(self, artifact_id: str) -> None:
        """Remove a file; raises as Optuna's, and as `explained`."""
        with self.explained():
            self._store.remove(artifact_id)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise what the system raises in a block as an error of one line.

        Raises:
            TunerError: The line.
        """
        try:
            yield
        except OSError as error:
            line = RunError(f"{self._folder} cannot be used ({first_line(error)}): see that it is there")
            raise disk_error(error) or line from None
