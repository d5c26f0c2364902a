"""Weights of a shared study's front, on a path that workers and whoever exports can reach: Optuna's artifact store."""

from collections.abc import Iterable
from pathlib import Path

from optuna.artifacts import FileSystemArtifactStore, download_artifact, get_all_artifact_meta, upload_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial

from tuner.bundle.format import WEIGHTS
from tuner.errors import RunError
from tuner.files import private_folder


class SharedWeights:
    """The weights that this worker has put there.

    Args:
        folder: The path; each worker is given it by its user, and never by the study. It is made where there is none.

    Raises:
        RunError: It cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._store = FileSystemArtifactStore(base_path=private_folder(folder))
        self._names: dict[int, str] = {}

    def keep(self, trial: Trial, file: Path) -> None:
        """Put the weights of a trial there that has not ended yet; nothing if it has none."""
        if file.is_file():
            self._names[trial.number] = upload_artifact(
                artifact_store=self._store, file_path=str(file), study_or_trial=trial
            )

    def drop(self, trials: Iterable[int]) -> None:
        """Remove weights that nobody needs, of those that this worker has put there."""
        for number in self._names.keys() & set(trials):
            try:
                self._store.remove(self._names.pop(number))
            except ArtifactNotFound:  # somebody has tidied up
                continue


def fetch_weights(folder: Path, trial: FrozenTrial, storage: BaseStorage, file: Path) -> None:
    """Copy the weights of a trial from the path that the workers share.

    Args:
        folder: The path.
        trial: Of the study.
        storage: Of the study.
        file: Where they are written.

    Raises:
        RunError: They are not there.
    """
    names = [
        one.artifact_id
        for one in get_all_artifact_meta(study_or_trial=trial, storage=storage)
        if one.filename == WEIGHTS
    ]
    if not names:
        raise RunError(
            f"the weights of trial {trial.number} are with the worker that trained it: export from that worker's "
            "folder, or give all workers --artifacts"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        download_artifact(artifact_store=FileSystemArtifactStore(folder), file_path=str(file), artifact_id=names[-1])
    except (ArtifactNotFound, ValueError, OSError):
        raise RunError(
            f"the weights of trial {trial.number} are not in {folder}: give --artifacts as the workers have it"
        ) from None
