"""Progress of a study, for a screen, a log or a test."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import Objective

OPENING, LOOKING, MEASURING = "opening the task", "looking at the model", "measuring the device"
SCORING, FILLING = "scoring the untouched model", "filling the feature store"
TRYING, PROMOTING, TRAINING, FINISHING = "trying plans", "promoting", "training", "finishing"
CROSS_VALIDATING = "cross-validating plans"
#: Phases of an export.
JUDGING, REFITTING, WRITING, CHECKING = "scoring the trial", "refitting", "writing the model", "scoring the export"
EXPORT = JUDGING, REFITTING, WRITING, CHECKING


class Listener:
    """Receives progress, and ignores what it does not override; the study does not depend on it."""

    def ends(self, at: float | None) -> None:
        """Report the clock (`tuner.machine.awake.CLOCK`) at which the time is up; None for never."""

    def begins(self, folder: Path) -> None:
        """Report the folder of the run, once it is known."""

    def phase(self, name: str) -> None:
        """Report the phase that begins now, such as `OPENING`; how long it takes is unknown until `step` says so."""

    def say(self, line: str) -> None:
        """Report a message for the user."""

    def step(self, what: str, done: float, of: float) -> None:
        """Report progress within the current phase."""

    def baseline(self, baseline: Baseline, objectives: Sequence[Objective], scored: Mapping[str, int]) -> None:
        """Report what the search is compared with, the given model first, and its number of samples by domain."""

    def resumed(self, records: Sequence[TrialRecord]) -> None:
        """Report the trials of earlier sessions, none in the first; after `baseline` where scores are known."""

    def trial(self, record: TrialRecord) -> None:
        """Report a finished trial."""

    def front(self, area: float, rung: int, gain: float | None) -> None:
        """Report the front after a trial: its hypervolume of (local, global) accuracy, and its rung.

        ``gain`` is what the rest of the time is expected to add to the hypervolume; None where that is not known.
        """

    def close(self) -> None:
        """Report the end of the study, however it ended."""

    def finished(self, run: Run) -> None:
        """Report the run, read from its folder: the last report, and only of a run that ended by itself."""


def together(listeners: Sequence[Listener]) -> Listener:
    """Return a listener that passes every report to each of several listeners, in their order."""

    def report(name: str, *arguments: Any) -> None:
        for listener in listeners:
            getattr(listener, name)(*arguments)

    joined = Listener()
    for name in vars(Listener):
        if not name.startswith("_"):
            setattr(joined, name, partial(report, name))
    return joined
