"""A prior made of runs: the plans whose neighbourhoods were on the fronts, and what they brought on each task."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tuner.arrays import Doubles
from tuner.commands.runs.source import open_run
from tuner.errors import RunError
from tuner.plan.parts import Scalar
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.results.prior.file import Expected, Prior, PriorPlan, Source, trains
from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.likeness import kind_of_task
from tuner.results.scores.pareto import area

#: As many plans of each run are kept, those that add most to the front first.
MOST_PLANS = 8
#: Distance at which a trial says e to the -1/2 of what it says of its own plan; every setting's range is 1 long, and
#: options that are no numbers are 1 apart.
NEAR = 0.5
#: Where the trials near a plan count less than this together, nothing is expected of it on a task.
LEAST_NEAR = 0.5
#: Numbers whose largest is so many times the smallest differ by their ratio.
DECADE = 10
#: A plan that adds a smaller share of the front's hypervolume is left out.
LEAST_GAIN = 1e-4


def build_prior(places: Sequence[str], say: Callable[[str], object]) -> Prior:
    """Return the prior of some runs; trials that several of them hold count once.

    Args:
        places: Folders of runs, or addresses of studies.
        say: Receives a message for each of them that is left out.

    Raises:
        TunerError: One of them cannot be read, or none has a front.
    """
    runs = [open_run(place) for place in places]
    kept = list[int]()
    for at in sorted(range(len(runs)), key=lambda at: -len(runs[at].records)):
        run = runs[at]
        whole = next((runs[other] for other in kept if _ended(run) & _ended(runs[other])), None)
        if not run.front:
            say(f"warning: {run.place} has no finished trial yet: it is left out")
        elif whole is not None:
            say(f"warning: {run.place} holds trials of {whole.place}: it is left out")
        else:
            kept.append(at)
    if not kept:
        named = " and ".join(run.place for run in runs)
        raise RunError(f"a prior needs finished trials, and {named} has none: wait for some, or give other runs")
    return portfolio([runs[at] for at in sorted(kept)])


def _ended(run: Run) -> set[tuple[int, float]]:
    """Return what is equal for the same trials only: their numbers, and the seconds that each took."""
    return {(record.trial, record.spent_seconds) for record in run.records if record.spent_seconds}


def portfolio(runs: Sequence[Run]) -> Prior:
    """Return the prior of some runs; a `RunError` where none of them has a front."""
    seen = [one for run in runs if (one := _seen(run)) is not None]
    if not seen:
        raise RunError("the runs have no front to take plans from: give runs with trials that ended")
    space = _Distances([settings for one in seen for settings in one.settings])
    plans: dict[str, PriorPlan] = {}
    for one in seen:
        members = [place for place, record in enumerate(one.records) if record.trial in one.front]
        found = [one.expected(space, 1, one.settings[place]) for place in members]
        for chosen in _best(one.source.untouched, [each for each in found if each is not None]):
            place = members[chosen]
            record = one.records[place]
            knobs = dict(record.knobs)
            expected = [other.expected(space, number, one.settings[place]) for number, other in enumerate(seen, 1)]
            plan = _plan(record)
            plans.setdefault(
                json.dumps(knobs, sort_keys=True),
                PriorPlan(knobs, describe(plan), trains(plan), tuple(each for each in expected if each is not None)),
            )
    return Prior(tuple(one.source for one in seen), tuple(plans.values()))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a run says of plans."""

    source: Source
    records: tuple[TrialRecord, ...]
    settings: tuple[Mapping[str, Scalar], ...]
    front: frozenset[int]

    def expected(self, space: "_Distances", number: int, settings: Mapping[str, Scalar]) -> Expected | None:
        """Return what a plan is expected to bring here; None where no trial was near it."""
        weights = np.array([math.exp(-0.5 * (space.between(settings, one) / NEAR) ** 2) for one in self.settings])
        near = float(weights.sum())
        if near < LEAST_NEAR:
            return None
        usual = median(record.values.get("train_seconds", 0.0) for record in self.records) or 1.0

        def mean(name: str, missing: float, scale: float = 1.0) -> float:
            values: Doubles = np.array([record.values.get(name, missing) / scale for record in self.records])
            return float(f"{weights @ values / near:.4g}")

        return Expected(
            task=number,
            near=float(f"{near:.3g}"),
            on_front=float(f"{weights @ [one.trial in self.front for one in self.records] / near:.3g}"),
            local_accuracy=min(1.0, max(0.0, mean("local_accuracy", 0.0))),
            global_accuracy=min(1.0, max(0.0, mean("global_accuracy", 1.0))),
            relative_seconds=mean("train_seconds", usual, usual),
        )


def _seen(run: Run) -> _Seen | None:
    """Return what a run says; None where it has no front to take plans from."""
    within = comparable(run.records)
    records = tuple(run.record(trial) for trial in within if "local_accuracy" in run.record(trial).values)
    size = area(record.values for record in records if record.trial in run.front)
    if not 0 < size <= 1:
        return None
    info = run.info
    kind = kind_of_task(info.model, info.task, run.device)
    untouched = {
        name: value for name, value in info.untouched.values.items() if name in {"local_accuracy", "global_accuracy"}
    }
    source = Source(
        kind, len(records), {name: float(f"{one:.4g}") for name, one in untouched.items()}, float(f"{size:.4g}")
    )
    return _Seen(source, records, tuple(_settings(_plan(record)) for record in records), frozenset(run.front))


def _best(untouched: Mapping[str, float], found: Sequence[Expected]) -> list[int]:
    """Return the places of plans that add most to the hypervolume one after another."""
    values = [{"local_accuracy": one.local_accuracy, "global_accuracy": one.global_accuracy} for one in found]
    chosen, points, left = list[int](), [untouched], list(range(len(found)))
    while left and len(chosen) < MOST_PLANS:
        before = area(points)
        gains = {place: area([*points, values[place]]) - before for place in left}
        best = max(gains, key=gains.__getitem__)
        if gains[best] < LEAST_GAIN:
            break
        points.append(values[best])
        chosen.append(best)
        left.remove(best)
    return chosen


def _plan(record: TrialRecord) -> TrialPlan:
    if record.plan is None:
        raise ValueError(f"trial {record.trial} was scored without a plan")
    return record.plan


def _settings(plan: TrialPlan) -> dict[str, Scalar]:
    """Return what a plan decides, by flat names that mean the same on every task."""
    content = plan.settings()
    del content["runtime"], content["split"]
    part = trains(plan)
    return {"depth": part.depth, "flops": part.flops, **dict(_flat("", content))}


def _flat(name: str, content: Any) -> Iterable[tuple[str, Scalar]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _flat(f"{name}.{key}", value)
    elif isinstance(content, list | tuple):
        for place, value in enumerate(content):
            yield from _flat(f"{name}.{place}", value)
    elif content is not None:
        yield name, content


class _Distances:
    """Distances between plans, by their settings: each number's range over all of them is 1 long."""

    def __init__(self, plans: Sequence[Mapping[str, Scalar]]) -> None:
        self._scales: dict[str, tuple[float, float, bool]] = {}
        for name in {name for plan in plans for name in plan}:
            values = [plan[name] for plan in plans if name in plan]
            numbers = [float(value) for value in values if _is_number(value)]
            if len(numbers) == len(values):
                low, high = min(numbers), max(numbers)
                self._scales[name] = low, high, low > 0 and high / low > DECADE

    def between(self, one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> float:
        """Return the distance of two plans."""
        apart = (self._apart(name, one.get(name), other.get(name)) for name in one.keys() | other.keys())
        return math.sqrt(sum(part * part for part in apart))

    def _apart(self, name: str, one: Scalar | None, other: Scalar | None) -> float:
        if one == other:
            return 0.0
        if one is None or other is None or name not in self._scales:
            return 1.0
        low, high, log = self._scales[name]
        if log:
            return abs(math.log(float(one) / float(other))) / math.log(high / low)
        return abs(float(one) - float(other)) / (high - low)


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
