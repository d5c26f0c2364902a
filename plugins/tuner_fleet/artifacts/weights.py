"""Weights of a shared study's front, where workers and whoever exports can reach them: Optuna's artifact store."""

import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

from optuna.artifacts import download_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.trial import FrozenTrial

from tuner.bundle.format import WEIGHTS
from tuner.errors import RunError, TunerError
from tuner.search.processes.guard import Interrupt
from tuner_fleet.artifacts.folder import FolderStore
from tuner_fleet.artifacts.place import Bucket
from tuner_fleet.study.content import ARTIFACT, WORKER

if TYPE_CHECKING:
    from tuner_fleet.artifacts.s3 import BucketStore

#: Seconds until a store that did not answer is asked again; that the end of a run waits for one at most, and in which
#: pieces, so that Ctrl-C ends the wait.
PAUSE, LAST, PIECE = 60.0, 600.0, 0.1
#: What a name is made of. What a database says is not used as a path otherwise.
NAME = re.compile(r"[0-9a-f-]{36}")


class SharedWeights:
    """The weights that this worker puts there.

    A thread sends and removes them, so that a store that hangs, or takes its time, delays no trial. A trial that has
    ended takes no more attributes: the name of its weights is noted with its record, and they are sent after that. What
    could not be sent or removed is tried again after a later trial, at the end, and by the worker's next session.

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
        self._todo: dict[int, Path | None] = {}  # files to send; None for weights to remove
        self._adopted = set[int]()
        self._lock, self._thread, self._lines = Lock(), Thread(), deque[str]()
        self._ask_at = 0.0  # 0 while the store answers

    def adopt(self, trials: Sequence[FrozenTrial], worker: str, folder: Path, wanted: Collection[int]) -> None:
        """Take over what earlier sessions of this worker have named: send what is not there yet, remove the rest.

        Args:
            trials: Of the study.
            worker: This one's name.
            folder: The worker's.
            wanted: Trials on a front.
        """
        with self._lock:
            for trial in trials:
                name, file = name_of(trial), file_of(folder, trial.number)
                if name is None or trial.user_attrs.get(WORKER) != worker:
                    continue
                self._names[trial.number] = name
                if trial.number not in wanted:
                    self._todo[trial.number] = None
                elif file.is_file():
                    self._todo[trial.number] = file
                    self._adopted.add(trial.number)
        self._begin()

    def send(self, trial: int, file: Path, name: str | None) -> None:
        """Send the weights of a trial that has ended, if they were named, and what could not be sent before."""
        if name is not None:
            with self._lock:
                self._names[trial], self._todo[trial] = name, file
        self._begin()

    def drop(self, trials: Iterable[int]) -> None:
        """Remove weights that nobody needs, of those that this worker has put there, or was about to."""
        with self._lock:
            self._todo.update(dict.fromkeys(self._names.keys() & set(trials)))
        self._begin()

    def leave(self, seconds: float, interrupt: Interrupt) -> None:
        """Wait until all is sent, and say what is not.

        Args:
            seconds: Time that there is for it.
            interrupt: Ends the wait.
        """
        end = time.monotonic() + min(seconds, LAST)
        self._ask_at = min(self._ask_at, time.monotonic())
        while time.monotonic() < end and not interrupt.asked:
            self._begin()
            if not self._thread.is_alive():  # all is done, or the store does not answer
                break
            self._thread.join(PIECE)
        self._say_lines()
        with self._lock:
            numbers = [str(number) for number, file in self._todo.items() if file is not None and file.is_file()]
        if numbers:
            noun = "trial" if len(numbers) == 1 else "trials"
            self._say(
                f"warning: the weights of {noun} {', '.join(numbers)} were not sent to {self._place}, and are in this "
                "worker's folder: continue with --resume to send them"
            )

    def _begin(self) -> None:
        """Let a thread do what there is to do, unless it does already, or the store did not answer a moment ago."""
        self._say_lines()
        if self._todo and not self._thread.is_alive() and time.monotonic() >= self._ask_at:
            self._thread = Thread(target=self._work, name="weights", daemon=True)  # the end does not wait for it
            self._thread.start()

    def _say_lines(self) -> None:
        """Say what the thread has met: a screen has one writer."""
        while self._lines:
            self._say(self._lines.popleft())

    def _work(self) -> None:
        """Send all that is to be sent, then remove what is to be removed; end where the store does not answer."""
        while True:
            with self._lock:
                if not self._todo:
                    return
                number, file = min(self._todo.items(), key=lambda item: item[1] is None)  # who may not remove may send
                name = self._names[number]
            try:
                with suppress(ArtifactNotFound):  # somebody has tidied up
                    self._store.remove(name) if file is None else self._write(number, name, file)
            except Exception as error:  # noqa: BLE001 - a thread that ends by one sends nothing any more, and nobody sees why
                if not self._ask_at:
                    self._lines.append(f"warning: {error}; until then, weights stay in this worker's folder")
                self._ask_at = time.monotonic() + PAUSE
                return
            if self._ask_at:
                self._lines.append(f"{self._place} takes weights again")
            self._ask_at = 0.0
            with self._lock:
                if self._todo[number] is file:  # they may be unwanted by now
                    del self._todo[number]
                if file is None:
                    del self._names[number]

    def _write(self, number: int, name: str, file: Path) -> None:
        try:
            with file.open("rb") as content:
                if number not in self._adopted or not self._has(name):
                    self._store.write(name, content)
        except FileNotFoundError:  # nobody needs them, and the run has removed them
            return

    def _has(self, name: str) -> bool:
        """Return whether weights are there, as far as the store lets this worker see."""
        try:
            self._store.open_reader(name).close()
        except (ArtifactNotFound, TunerError):
            return False
        return True


def open_store(place: Path | Bucket) -> "FolderStore | BucketStore":
    """Open an artifact store.

    Raises:
        TunerError: It cannot be opened.
    """
    if isinstance(place, Path):
        return FolderStore(place)
    from tuner_fleet.artifacts.s3 import BucketStore

    return BucketStore(place)


def file_of(folder: Path, trial: int) -> Path:
    """Return the file of a trial's weights in the folder of a run."""
    return folder / "trials" / str(trial) / WEIGHTS


def new_name(file: Path) -> str | None:
    """Return a new name for the weights of a trial that has not ended yet; None if it has none."""
    return str(uuid4()) if file.is_file() else None


def name_of(trial: FrozenTrial) -> str | None:
    """Return the name of a trial's weights: that of the training which its record is of; None if it has none."""
    name = trial.user_attrs.get(ARTIFACT)
    return name if isinstance(name, str) and NAME.fullmatch(name) else None


def fetch_weights(place: Path | Bucket, trial: FrozenTrial, file: Path) -> None:
    """Copy the weights of a trial from where the workers put them.

    Args:
        place: Where.
        trial: Of the study.
        file: Where they are written.

    Raises:
        TunerError: They are not there, or cannot be read.
    """
    name = name_of(trial)
    if name is None:
        raise RunError(
            f"the weights of trial {trial.number} are with the worker that trained it: export from that worker's "
            "folder, or give all workers --artifacts"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    store = open_store(place)
    try:
        with store.explained():
            download_artifact(artifact_store=store, file_path=str(file), artifact_id=name)
    except ArtifactNotFound:
        raise RunError(
            f"the weights of trial {trial.number} are not in {place}: give --artifacts as the workers have it, or "
            "export from the folder of the worker that trained it"
        ) from None
