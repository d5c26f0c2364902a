"""Weights of a shared study's front, where workers and whoever exports can reach them: Optuna's artifact store."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from optuna.artifacts import download_artifact
from optuna.artifacts.exceptions import ArtifactNotFound

from tuner.errors import RunError
from tuner.results.folder import weights_of
from tuner.search.processes.guard import Interrupt
from tuner_fleet.artifacts.place import Bucket
from tuner_fleet.artifacts.stores import explained, open_store, open_writable

#: Seconds until a store that did not answer is asked again.
RETRY_SECONDS = 60.0
#: Seconds that the end of a run waits for a store at most, in pieces, so that Ctrl-C ends the wait.
CLOSING_SECONDS, POLL_SECONDS = 600.0, 0.1


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
        self._place, self._say, self._store = place, say, open_writable(place)
        self._names: dict[int, str] = {}
        self._todo: dict[int, Path | None] = {}  # files to send; None for weights to remove
        self._lock, self._thread, self._lines = Lock(), Thread(), deque[str]()
        self._ask_at = 0.0  # 0 while the store answers

    def adopt(self, names: Mapping[int, str], folder: Path, wanted: Collection[int]) -> None:
        """Take over what earlier sessions of this worker have named: send what is still here, and remove the rest."""
        with self._lock:
            self._names |= names
            for number in names:
                file = weights_of(folder, number)
                if number not in wanted:
                    self._todo[number] = None
                elif file.is_file():
                    self._todo[number] = file
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
        self._ask_at = min(self._ask_at, time.monotonic())
        self.settle(min(seconds, CLOSING_SECONDS), interrupt)
        with self._lock:
            numbers = [str(number) for number, file in self._todo.items() if file is not None and file.is_file()]
        if numbers:
            noun = "trial" if len(numbers) == 1 else "trials"
            self._say(
                f"warning: the weights of {noun} {', '.join(numbers)} were not sent to {self._place}, and are in this "
                "worker's folder: continue with --resume to send them"
            )

    def settle(self, seconds: float, interrupt: Interrupt) -> None:
        """Wait until all is done, or the store does not answer; see `leave`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not interrupt.asked:
            self._begin()
            if not self._thread.is_alive():
                break
            self._thread.join(POLL_SECONDS)
        self._say_lines()

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
                with explained(self._place), suppress(ArtifactNotFound):  # somebody has tidied up
                    self._store.remove(name) if file is None else self._write(name, file)
            except Exception as error:  # noqa: BLE001 - a thread that ends by one sends nothing any more, and nobody sees why
                if not self._ask_at:
                    self._lines.append(f"warning: {error}; until then, weights stay in this worker's folder")
                self._ask_at = time.monotonic() + RETRY_SECONDS
                return
            if self._ask_at:
                self._lines.append(f"{self._place} takes weights again")
            self._ask_at = 0.0
            with self._lock:
                if self._todo[number] is file:  # they may be unwanted by now
                    del self._todo[number]
                if file is None:
                    del self._names[number]

    def _write(self, name: str, file: Path) -> None:
        try:
            content = file.open("rb")
        except FileNotFoundError:  # nobody needs them, and the run has removed them
            return
        with content:
            self._store.write(name, content)


def fetch_weights(place: Path | Bucket, trial: int, name: str | None, file: Path) -> None:
    """Copy the weights of a trial from where the workers put them.

    Raises:
        TunerError: They are not there, or cannot be read.
    """
    if name is None:
        raise RunError(
            f"the weights of trial {trial} are with the worker that trained it: export from that worker's folder, or "
            "give all workers --artifacts"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    store = open_store(place)
    try:
        with explained(place):
            download_artifact(artifact_store=store, file_path=str(file), artifact_id=name)
    except ArtifactNotFound:
        raise RunError(
            f"the weights of trial {trial} are not in {place}: give --artifacts as the workers have it, or export from "
            "the folder of the worker that trained it"
        ) from None
