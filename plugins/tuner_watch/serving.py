"""The model in service: the newest round of a bundle that works."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.bundle.format import Bundle
from tuner.bundle.rounds import CURRENT, device_folder, folder_of, rounds_in_use
from tuner.errors import BundleError
from tuner.runtime.infer.personaliser import Personaliser, Sample
from tuner.runtime.infer.prediction import Prediction
from tuner_watch.monitor import after_round
from tuner_watch.state import StateFile


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
