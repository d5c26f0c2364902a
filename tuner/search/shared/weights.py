"""Weights of a shared study's front, where workers and whoever exports can reach them: Optuna's artifact store."""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from optuna import Study
from optuna.artifacts import download_artifact, get_all_artifact_meta, upload_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial

from tuner.bundle.format import WEIGHTS
from tuner.errors import RunError, TunerError
from tuner.search.shared.artifacts import Bucket
from tuner.search.shared.folder import FolderStore

if TYPE_CHECKING:
    from tuner.search.shared.s3 import BucketStore

#: Seconds until a store that did not answer is asked again, so that it does not slow the run down; and those that an
#: attempt may take.
PAUSE, ATTEMPT = 60.0, 60.0
#: Names that Optuna gives. What a database says is not used as a path otherwise.
NAME = re.compile(r"[0-9a-f-]{36}")


class SharedWeights:
    """The weights that this worker puts there.

    A trial that has ended takes no more attributes, so its weights are named before and sent after that: a store that
    does not answer costs no trial. What could not be sent stays in the worker's folder, and is sent later.

    Args:
        place: Where; each worker is given it by its user, and never by the study. A folder is made where there is none.
        say: Receives messages for the user.

    Raises:
        TunerError: Nothing can be written there.
    """

    def __init__(self, place: Path | Bucket, say: Callable[[str], object]) -> None:
        self._place, self._say, self._store = place, say, open_store(place)
        self._store.check()
        self._names: dict[int, str] = {}
        self._unsent: dict[int, Path] = {}
        self._ask_at = 0.0

    def adopt(self, study: Study, folder: Path) -> None:
        """Take over what an earlier session of this worker has named, and send what is not there yet.

        Args:
            study: Optuna's.
            folder: The worker's.
        """
        for trial in study.get_trials(deepcopy=False):
            file = file_of(folder, trial.number)
            if not trial.state.is_finished() or not file.is_file():
                continue
            for name in names_of(trial, study._storage):  # noqa: SLF001 - a study has no public way to it
                self._names[trial.number] = name
                self._unsent[trial.number] = file
                with suppress(ArtifactNotFound, TunerError):
                    self._store.open_reader(name).close()
                    del self._unsent[trial.number]
                    break
        self._send_all()

    def name(self, trial: Trial, file: Path) -> None:
        """Name the weights of a trial that has not ended yet; nothing if it has none."""
        if file.is_file():
            self._names[trial.number] = upload_artifact(
                artifact_store=_Nowhere(), file_path=str(file), study_or_trial=trial
            )

    def send(self, trial: int, file: Path) -> None:
        """Send the weights of a trial that has ended, if it was named, and what could not be sent before."""
        if trial in self._names:
            self._unsent[trial] = file
        self._send_all()

    def drop(self, trials: Iterable[int]) -> None:
        """Remove weights that nobody needs, of those that this worker has put there."""
        for number in self._names.keys() & set(trials):
            self._unsent.pop(number, None)
            if not self._reached(partial(self._store.remove, self._names[number])):
                return
            del self._names[number]

    def leave(self, seconds_left: float) -> None:
        """Try again to send what has not been sent, and say what is still to be sent.

        Args:
            seconds_left: Time that there is for it.
        """
        if seconds_left >= ATTEMPT:
            self._ask_at = min(self._ask_at, time.monotonic())
            self._send_all()
        numbers = [str(number) for number, file in self._unsent.items() if file.is_file()]
        if numbers:
            noun = "trial" if len(numbers) == 1 else "trials"
            self._say(
                f"warning: the weights of {noun} {', '.join(numbers)} were not sent to {self._place}, and are in this "
                "worker's folder: continue with --resume to send them"
            )

    def _send_all(self) -> None:
        for number, file in list(self._unsent.items()):
            is_needed = file.is_file()
            if is_needed and not self._reached(partial(self._write, self._names[number], file)):
                return
            del self._unsent[number]

    def _write(self, name: str, file: Path) -> None:
        with file.open("rb") as content:
            self._store.write(name, content)

    def _reached(self, work: Callable[[], object]) -> bool:
        """Do something at the store; return whether it answered. One that did not is left alone for a while."""
        if time.monotonic() < self._ask_at:
            return False
        try:
            with suppress(ArtifactNotFound):  # somebody has tidied up
                work()
        except TunerError as error:
            if not self._ask_at:
                self._say(f"warning: {error}; until then, weights stay in this worker's folder")
            self._ask_at = time.monotonic() + PAUSE
            return False
        if self._ask_at:
            self._say(f"{self._place} takes weights again")
        self._ask_at = 0.0
        return True


class _Nowhere:
    """An artifact store for weights that are named now and sent later."""

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Find nothing."""
        raise ArtifactNotFound(artifact_id)

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Write nothing."""

    def remove(self, artifact_id: str) -> None:
        """Remove nothing."""


def open_store(place: Path | Bucket) -> "FolderStore | BucketStore":
    """Open an artifact store.

    Raises:
        TunerError: It cannot be opened.
    """
    if isinstance(place, Path):
        return FolderStore(place)
    from tuner.search.shared.s3 import BucketStore

    return BucketStore(place)


def file_of(folder: Path, trial: int) -> Path:
    """Return the file of a trial's weights in the folder of a run."""
    return folder / "trials" / str(trial) / WEIGHTS


def names_of(trial: FrozenTrial, storage: BaseStorage) -> list[str]:
    """Return the names of a trial's weights, the newest last: a plan that is tried again keeps those it had."""
    metas = get_all_artifact_meta(study_or_trial=trial, storage=storage)
    return [meta.artifact_id for meta in metas if meta.filename == WEIGHTS and NAME.fullmatch(meta.artifact_id)]


def fetch_weights(place: Path | Bucket, trial: FrozenTrial, storage: BaseStorage, file: Path) -> None:
    """Copy the weights of a trial from where the workers put them.

    Args:
        place: Where.
        trial: Of the study.
        storage: Of the study.
        file: Where they are written.

    Raises:
        TunerError: They are not there, or cannot be read.
    """
    names = names_of(trial, storage)
    if not names:
        raise RunError(
            f"the weights of trial {trial.number} are with the worker that trained it: export from that worker's "
            "folder, or give all workers --artifacts"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    store = open_store(place)
    for name in reversed(names):
        with suppress(ArtifactNotFound), store.explained():
            download_artifact(artifact_store=store, file_path=str(file), artifact_id=name)
            return
    raise RunError(
        f"the weights of trial {trial.number} are not in {place}: give --artifacts as the workers have it, or export "
        "from the folder of the worker that trained it"
    )
