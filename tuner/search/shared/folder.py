"""Optuna's artifact store in a folder; what goes wrong there is an error of one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from optuna.artifacts import FileSystemArtifactStore

from tuner.errors import RunError, disk_error, first_line
from tuner.files import PART, private_folder


class FolderStore:
    """A folder as Optuna's artifact store.

    Args:
        folder: Which.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._store = folder, FileSystemArtifactStore(folder)

    def check(self) -> None:
        """Make the folder where there is none.

        Raises:
            RunError: It cannot be made.
        """
        private_folder(self._folder)

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open a file; raises as Optuna's, and as `explained`."""
        with self.explained():
            return self._store.open_reader(artifact_id)

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Write a file, whole or not at all; raises as `explained`."""
        part = f"{artifact_id}{PART}"
        with self.explained():
            try:
                self._store.write(part, content_body)
                (self._folder / part).replace(self._folder / artifact_id)
            except BaseException:
                (self._folder / part).unlink(missing_ok=True)
                raise

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
