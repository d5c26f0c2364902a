"""The model in service: rounds put in use and left again, and the newest one that works."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.bundle.format import Bundle
from tuner.bundle.rounds import (
    CURRENT,
    EXPORTED,
    FOLDER,
    ROUNDS,
    State,
    device_folder,
    folder_of,
    locked,
    point,
    rounds_in_use,
    state_of,
    sweep,
)
from tuner.errors import BundleError
from tuner.files import flush
from tuner.runtime.infer.personaliser import Personaliser, Sample
from tuner.runtime.infer.prediction import Prediction
from tuner_watch.monitor import after_round
from tuner_watch.state import StateFile

KEPT = 2  # rounds: the one in use, and the last good one


class UnusableError(BundleError):
    """No round of a bundle can be used, the exported one included."""


class ServingModel:
    """The newest round of a bundle that works; one that fails as it runs is replaced by the round before it.

    Args:
        folder: Folder of the bundle as it was exported.
        memory: State, which names the round in use; a round that is passed over is added as a problem.
        threads: Threads within an operator; all that the process may use where it is None.
        unknown: Whether predictions say how unlike the user's samples a sample is, in rounds that can tell.

    Attributes:
        model: The round in use.

    Its methods raise an `UnusableError` where no round of the bundle can be used.
    """

    def __init__(self, folder: Path, memory: StateFile, threads: int | None, *, unknown: bool = False) -> None:
        self._folder, self._memory, self._threads, self._unknown = folder, memory, threads, unknown
        self._pointer = device_folder(folder) / CURRENT
        self.open()

    def open(self, after: str | None = None) -> None:
        """Open the newest round that works, starting after a round that does not."""
        self._opened = self._stamp()
        names = rounds_in_use(self._folder)
        for name in names[names.index(after) + 1 :] if after in names else names:
            state = self._memory.state
            if name != state.round:
                state = replace(after_round(state, swapped=True), round=name, new_samples=state.new_samples)
            try:
                bundle = Bundle.read(folder_of(self._folder, name))
                if not state.fits(len(bundle.models)):
                    state = after_round(state, swapped=True)
                told = bundle.info.unknown is not None and self._unknown
                self.model = Personaliser(bundle, self._threads, state.thresholds, unknown=told)
            except BundleError as error:
                self._memory.add_problem(f"round {name} is not used: {error}")
                continue
            self._memory.state = state
            return
        reason = self._memory.state.problems[-1].line
        raise UnusableError(
            f"{self._folder}: neither a round nor the exported bundle can be used ({reason}): export again"
        )

    def refresh(self) -> None:
        """Open the newest round again where another process has installed one, or rolled back."""
        if self._stamp() != self._opened:
            self.open()

    def predict(self, sample: Sample, *, explore: bool) -> tuple[Prediction, npt.NDArray[np.float32] | None]:
        """Predict a sample as `Personaliser.explored` does, with an older round if need be."""
        while True:
            try:
                return self.model.explored(sample, explore=explore)
            except BundleError as error:
                self._memory.add_problem(f"round {self._memory.state.round} is not used: {error}")
                self.open(after=self._memory.state.round)

    def _stamp(self) -> tuple[int, ...]:
        """Return what differs after every change to the list of rounds; nothing without one."""
        try:
            status = self._pointer.stat()
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_mtime_ns


def install_round(bundle: Path, made: Path, after: State | None = None) -> str:
    """Copy a new bundle in as a round, make it the one in use, and return its name.

    Args:
        bundle: Folder of the bundle as it was exported.
        made: Folder of the new bundle.
        after: `state_of` the bundle when training began, which must still hold. Any where it is not given.

    Raises:
        BundleError: Other rounds are in use by now, or samples were forgotten; or another process keeps the rounds
            locked.
        OSError: The disk is full or cannot be written; the round in use stays.
    """
    home = device_folder(bundle)
    with locked(home):
        sweep(bundle)
        names, count = state_of(bundle)
        if after is not None and names != after[0]:
            raise BundleError(f"round {after[0][0]}, which it was trained from, was replaced by {names[0]} meanwhile")
        if after is not None and count != after[1]:
            raise BundleError("samples that it was trained on were forgotten meanwhile")
        name = f"{count + 1:04d}"
        part = home / ROUNDS / f".{name}.part"
        try:
            shutil.copytree(made, part, ignore=shutil.ignore_patterns(FOLDER))
            for path in (part, *part.rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)
                flush(path)
            part.rename(home / ROUNDS / name)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        flush(home / ROUNDS)
        older = [earlier for earlier in names if earlier != EXPORTED][: KEPT - 1]
        _use(bundle, (name, *older, EXPORTED), count + 1)
    return name


def roll_back(bundle: Path) -> tuple[str, str]:
    """Return to the round before the one in use; return the names of the round that was in use and of that which is."""
    with locked(device_folder(bundle)):
        (before, *rest), count = state_of(bundle)
        if not rest:
            raise BundleError(f"{bundle} is in use as it was exported: there is no earlier round to go back to")
        _use(bundle, rest, count)
    return before, rest[0]


def _use(bundle: Path, names: Sequence[str], count: int) -> None:
    point(bundle / FOLDER, names, count)
    sweep(bundle)
