"""A run, read from its folder."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tuner.distribution import offered
from tuner.errors import RunError
from tuner.plan.trial import TrialPlan
from tuner.results.folder import RunInfo, read_records, read_run, weights_of
from tuner.results.kinds import chosen_kind
from tuner.results.records.judging import comparable
from tuner.results.records.trial import STATES, TrialRecord
from tuner.results.scores.frame import frame
from tuner.results.scores.likeness import device_kind
from tuner.results.scores.objectives import BALANCED_ACCURACY, DOMAINS, LEFT_OUT_ACCURACY, Objective, objective_of
from tuner.results.scores.pareto import is_worth_naming, knee, shortlist, useful
from tuner.results.scores.picking import front_and_best
from tuner.targets.base import LEFT_OUT
from tuner.task import Task

if TYPE_CHECKING:
    from pandas import DataFrame

#: Group of the entry point that translates what trials of several kinds of devices cost.
VIEWS = "tuner.kinds"
View = Callable[[RunInfo, tuple[TrialRecord, ...]], tuple[RunInfo, tuple[TrialRecord, ...]]]


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished or interrupted run, read from its folder.

    Attributes:
        folder: The run's folder.
        info: What was asked and what was spent.
        records: Every trial, in order.
        front: Numbers of the Pareto-optimal trials, of the highest rung that was reached, and of the best one.
        knee: The balanced one of these; None where the front is empty.
        best: The one with the highest local accuracy that keeps the known classes, which is picked by default: of those
            that the samples cannot tell apart, the one with the lowest validation loss, or of losses that they cannot
            tell apart, the one that trained the most.
        shortlist: Those of the front that are worth a look: not worse than what comes free, and not near-equal.
        task: The task, where it was given as an object; None where the run holds its name or file.
    """

    folder: Path
    info: RunInfo
    records: tuple[TrialRecord, ...]
    front: tuple[int, ...]
    knee: int | None
    best: int | None = None
    shortlist: tuple[int, ...] = ()
    task: Task | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return one line: the task, the trials by state, the front and its best trial."""
        states = ", ".join(f"{number} {state}" for state, number in self.counts.items() if number) or "no trial"
        front = f"front of {len(self.front)}" if self.front else "empty front"
        if self.best is not None:
            values = self.record(self.best).values  # noqa: PD011 - a record's, no frame's
            texts = (f"{one.word} {one.text(values[one.name])}" for one in self.objectives)
            front += f", best {self.best}: {', '.join(texts)}"
        return f"<Run {str(self.folder)!r} of {self.info.task_name}: {states}; {front}>"

    @property
    def place(self) -> str:
        """What names the run in commands: its folder, or the address of the study that this is a copy of."""
        return str(self.folder) if self.info.worker or not self.info.config.study else self.info.config.study

    @property
    def device(self) -> str:
        """Kind of the device whose costs are shown, such as ``"aarch64, 4 cores"``."""
        kind = self.info.kinds.get(self.info.kind)
        return self.info.device if kind is None else device_kind(kind.device.machine, kind.device.cores)

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by state; a plan suggested again is not counted again."""
        numbers = Counter(record.state for record in self.records if record.same_as is None)
        return {state: numbers[state] for state in STATES}

    def text_of(
        self, objective: Objective, values: Mapping[str, float], samples: Mapping[str, int] | None = None
    ) -> str:
        """Return a trial's value as `text` does, with its standard error where it has one; a dash where it has none."""
        if objective.name not in values:
            return "–"
        return objective.text_of(values, self._samples if samples is None else samples)

    def text(self, objective: Objective, value: float, samples: Mapping[str, int] | None = None) -> str:
        """Return a value with its unit; an accuracy with its 95 % interval (Wilson).

        Args:
            objective: What the value is of.
            value: The value.
            samples: Number of samples by domain that it was measured on; those of the front where not given.
        """
        return objective.text(value, self._samples if samples is None else samples)

    def frame(self) -> "DataFrame":
        """Return the trials as a table of pandas, one row for each, with the trial's number as the index.

        Its columns: ``state``, ``rung``, ``on_front`` and ``best``; the measured values by their names, such as
        ``local_accuracy`` (a fraction); ``spent_seconds``, ``reason`` and ``sentence``; and as many of
        ``estimate.NAME``, ``constraint.NAME``, ``knob.NAME`` and ``plan.NAME`` as the trials have.
        """
        return frame(self.records, self.front, self.best)

    @property
    def best_trials(self) -> tuple[TrialRecord, ...]:
        """The records of the front, as Optuna's property of that name has them."""
        return tuple(map(self.record, self.front))

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The study's objectives."""
        return tuple(one.of(self.info.targets) for one in self.info.objectives)

    @property
    def columns(self) -> tuple[Objective, ...]:
        """The objectives, the balanced accuracy of uneven classes, and what solved heads score on all local samples."""
        is_uneven = any(BALANCED_ACCURACY.name in self.record(trial).values for trial in self.front)  # noqa: PD011 - a record's
        more = (LEFT_OUT_ACCURACY.of(self.info.targets),) if self.left_out_samples else ()
        return *self.objectives, *((BALANCED_ACCURACY,) if is_uneven else ()), *more

    def objective(self, name: str) -> Objective:
        """Return an objective by its name, as it is of this run's task: the study's, or one of the usual ones."""
        return objective_of(name, self.objectives, self.info.targets)

    def record(self, trial: int) -> TrialRecord:
        """Return a trial's record; a `RunError` where there is no such trial."""
        for record in self.records:
            if record.trial == trial:
                return record
        last = max((record.trial for record in self.records), default=-1)
        raise RunError(f"{self.place} has no trial {trial}: it has 0 to {last}")

    @classmethod
    def open(cls, folder: str | Path, task: Task | None = None, kind: str = "") -> Self:
        """Read a run.

        Args:
            folder: The run's folder.
            task: Needed to export a run that was made from a task object and not from a file or a name.
            kind: Of a study that ran on several kinds of devices, the one whose costs are shown; by default that of
                the device that the folder is of.

        Raises:
            RunError: The folder is not a run's, a trial lacks a value of an objective, or there is no such kind.
        """
        path = Path(folder)
        info = read_run(path)
        if kind:
            info = replace(info, kind=chosen_kind(kind, info.kinds))
        records = read_records(path, info.template)
        if info.kinds:
            info, records = _view_of(path)(info, records)
        members = comparable(records)
        for trial, values in members.items():
            lacking = [one.name for one in info.objectives if not math.isfinite(values.get(one.name, math.nan))]
            if lacking:
                raise RunError(f"{path}: trial {trial} has no value of {lacking[0]}: run it again")
        untouched, most_frequent = info.untouched.values, info.task.most_frequent  # noqa: PD011 - a baseline's
        on_front, chosen = front_and_best(  # the weights of a study's trials are in several folders
            records, info.objectives, lambda trial: not info.kinds and weights_of(path, trial).is_file(), untouched,
            most_frequent, info.config.limits.forgetting,
        )  # fmt: skip
        measured = {record.trial: record.values for record in records}  # noqa: PD011 - a record's
        balanced = useful({trial: measured[trial] for trial in on_front}, untouched, most_frequent)
        shown = sorted({*on_front, *(() if chosen is None else (chosen,))})
        worth = useful({trial: measured[trial] for trial in shown}, untouched, most_frequent)
        run = cls(path, info, records, tuple(shown), knee(balanced, info.objectives, untouched), task=task)
        if chosen is not None:
            worth = {
                key: one
                for key, one in worth.items()
                if is_worth_naming(one, worth[chosen], run.scored_samples, run.objectives)
            }
        listed = shortlist(worth, info.objectives, run.scored_samples, chosen)
        return replace(run, best=chosen, shortlist=listed)

    @property
    def scored_samples(self) -> dict[str, int]:
        """Number of samples that the front is scored on, by domain."""
        plan = self._plan_of_front
        return {} if plan is None else plan.scored

    @property
    def left_out_samples(self) -> int:
        """Number of local samples that solved heads of the front are scored on by leave-one-out too; 0 without such."""
        plan = self._plan_of_front
        members = (self.record(trial) for trial in self.front)
        has_any = any(LEFT_OUT_ACCURACY.name in member.values for member in members)  # noqa: PD011 - a record's
        return plan.local_used if plan is not None and has_any else 0

    def samples_of(self, name: str) -> int:
        """Return the number of samples that an accuracy is on, by its name; 0 for other values."""
        return self._samples.get(DOMAINS.get(name, ""), 0)

    @property
    def _samples(self) -> dict[str, int]:
        return {**self.scored_samples, LEFT_OUT: self.left_out_samples}

    @property
    def folds(self) -> int:
        """Number of folds of the local training samples that the front is scored on too; 0 for none."""
        plan = self._plan_of_front
        return 0 if plan is None else plan.data.folds

    @property
    def of_prior(self) -> str:
        """How many trials came from a prior, and how many of these are on the front, for people; empty for none."""
        trials = [one.trial for one in self.records if one.prior is not None and one.promoted is None]
        found = sum(self.record(trial).prior is not None for trial in self.front)
        return f"{len(trials)} began with plans of the prior, of which {found} are on the front" if trials else ""

    @property
    def _plan_of_front(self) -> TrialPlan | None:
        return next((plan for trial in self.front if (plan := self.record(trial).plan) is not None), None)


def _view_of(path: Path) -> View:
    """Return what shows a run of several kinds of devices as one of them sees it: the entry point of a plugin."""
    view = next(iter(offered(VIEWS).values()), None)
    if view is None:
        raise RunError(
            f"{path} is of a study that several workers share, and the plugin that reads it is not loaded: see "
            "`tuner plugins`, and TUNER_PLUGINS, which switches plugins off"
        )
    loaded: View = view.load()
    return loaded
