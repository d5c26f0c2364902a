"""Trials as points of a picture: values with their 95 % intervals, and the trials that a front is compared with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tuner.results.records.baseline import UNTOUCHED, Baseline
from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """A trial (``"trial 9"``), or the model (``"untouched"``), in numbers: measured values by name.

    Attributes:
        intervals: Lowest and highest value of each accuracy with 95 % confidence, by name.
    """

    name: str
    values: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)


def baseline_point(run: Run, name: str = UNTOUCHED) -> Point:
    """Return a baseline's scores, by default the given model's; no values where there are none."""
    found = next((one for one in run.info.baselines if one.name == name), Baseline(name))
    return _point(run, name, found.values)


def point(run: Run, trial: int) -> Point:
    """Return a trial's values."""
    return _point(run, f"trial {trial}", run.record(trial).values)


def scored(run: Run) -> tuple[int, ...]:
    """Return the trials that were scored on the front's own samples and obey every limit."""
    return tuple(comparable(run.records))


#: What a reference trains.
REFERENCES: Mapping[str, Callable[[TrialRecord], bool]] = {
    "head only": lambda record: record.plan is not None and record.plan.trainable == 1,
    "everything": lambda record: record.plan is not None and record.plan.split == 0 and not record.plan.heads.exits,
}


def references(run: Run) -> dict[str, TrialRecord | None]:
    """Return, by reference, its best trial of those scored like the front; None where there is none.

    Trials that obey every limit come first: where none does, the best of the others is what the reference reaches.
    """
    within = scored(run)
    rung = min((run.record(trial).rung for trial in within), default=0)
    found: dict[str, TrialRecord | None] = {}
    for name, belongs in REFERENCES.items():
        members = [one for one in run.records if one.values and one.rung == rung and not one.same_as and belongs(one)]
        members = [one for one in members if "local_accuracy" in one.values]
        best = max(members, key=lambda one: (one.trial in within, one.values["local_accuracy"]), default=None)
        found[name] = best
    return found


def interval(run: Run, name: str, value: float) -> Interval | None:
    """Return the 95 % interval (Wilson) of an accuracy; None for other values, and for AUC and R²."""
    return run.info.targets.interval(value, run.samples_of(name) or 0)


def _point(run: Run, title: str, values: Mapping[str, float]) -> Point:
    bounds = {name: bound for name, value in values.items() if (bound := interval(run, name, value))}
    return Point(title, values, bounds)
