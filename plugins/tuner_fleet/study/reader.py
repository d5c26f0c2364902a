"""A shared study as the folder of a run: for all that looks at runs, or exports one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from optuna.storages import BaseStorage

from tuner.errors import RunError
from tuner.files import write_private
from tuner.results.folder import TRIALS, RunInfo, weights_of, write_run
from tuner.results.records.trial import SCORED, TrialRecord
from tuner_fleet.address import Address
from tuner_fleet.artifacts.place import read_artifacts
from tuner_fleet.artifacts.weights import fetch_weights
from tuner_fleet.study.content import as_line, find_study, info_of, record_in, weights_in
from tuner_fleet.study.device import this_device


class Reader:
    """Reads a shared study, again and again.

    Args:
        address: Where it is.
        storage: The same, opened.

    Raises:
        RunError: There is none.
    """

    def __init__(self, address: Address, storage: BaseStorage) -> None:
        self.address, self._trials = address, find_study(storage, address)

    def finished(self) -> int:
        """Return how many trials have ended."""
        return sum(trial.state.is_finished() for trial in self._trials.all())

    def fetch(self, number: int, artifacts: str | Path, folder: Path) -> None:
        """Copy the weights of a trial into the folder of a run, from where the workers put them.

        Raises:
            TunerError: They are not there, or cannot be read.
        """
        trials = self._trials.all()
        if not 0 <= number < len(trials):
            raise RunError(f"the study {self.address.shown} has no trial {number}")
        fetch_weights(read_artifacts(artifacts), number, weights_in(trials[number]), weights_of(folder, number))

    def write(self, folder: Path) -> None:
        """Write the study into a folder as the run that it would be on one device.

        Raises:
            RunError: What the study says of itself cannot be believed.
        """
        attributes, trials = self._trials.study.user_attrs, self._trials.all()
        info, found, damaged = info_of(attributes, self.address), list[TrialRecord](), 0
        for trial in trials:
            try:
                record = record_in(trial, info.template, info.objectives)
            except RunError:
                damaged += 1
                continue
            found += [] if record is None else [record]
        ended = f"{info.ended}, {sum(trial.state.name == 'RUNNING' for trial in trials)} trials running"
        ended += f", {damaged} damaged left out" if damaged else ""
        write_run(folder, replace(info, ended=ended, kind=_kind_shown(info, found)))
        write_private(folder / TRIALS, "".join(map(as_line, found)))


def _kind_shown(info: RunInfo, records: Sequence[TrialRecord]) -> str:
    """Return the kind whose costs are shown: this device's, or else the one that scored most trials."""
    here, scored = this_device(), Counter(record.kind for record in records if record.state in SCORED)
    mine = [name for name, kind in info.kinds.items() if kind.device.is_as_fast_as(here)]
    return max(mine or info.kinds, key=lambda name: scored[name], default=info.kind)
