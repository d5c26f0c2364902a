"""Replays of searches on a recorded table: scores are looked up, and the clock goes on by the recorded seconds."""

import gzip
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from pydantic import TypeAdapter

from benchmarks.search.record import KEPT, TABLES, grid, table_space
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import Scalar
from tuner.planner.device import Rates
from tuner.plugin.compose import Composed, compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import Numeric, ValueSource, Wanted
from tuner.plugin.sources import fixed_values
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import OBJECTIVES, Objective
from tuner.results.scores.pareto import area
from tuner.search.propose.anchors import anchors
from tuner.search.propose.candidates import Candidates
from tuner.search.propose.structures import Structures
from tuner.search.rungs import ETA, Ladder, at_rung, lowest_rung, ranked
from tuner.search.setting import Setting
from tuner.search.trials.journal import PROMOTED, RUNG, next_trial, optuna_values, tell
from tuner.search.trials.queue import Queue

#: A budget is the time of so many trials of the table's mean length on the top rung.
TRIALS = 60
#: Rungs below the top that MO-ASHA uses: one did best of one, two and three, which leave it nothing on top for long.
HALVING_RUNGS = 1
#: Plans tried before, one after another, that end a replay: the grid is small.
REPEATS = 400
LOGARITHMIC = frozenset({"recipe.learning_rate", "recipe.epochs", "recipe.batch_size"})


class Clock:
    """Recorded seconds that have passed."""

    def __init__(self) -> None:
        self.seconds = 0.0


@dataclass(frozen=True)
class Replayed(Setting):
    """A setting whose time is that of a replay."""

    clock: Clock = Clock()  # noqa: RUF009 - each replay gives its own
    budget: float = math.inf

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget - self.clock.seconds


#: Knobs that are newer than the tables, as they were without them.
SINCE: Mapping[str, Scalar] = {
    "gdm.weight": 1.0, "gdm.balance": False, "runtime.precision": "fp32",
    "recipe.label_smoothing": 0.0, "recipe.solve_again": False,
}  # fmt: skip


class Table:
    """A recorded table, and the search space that its grid lies in."""

    def __init__(self, name: str) -> None:
        content = json.loads(gzip.decompress((TABLES / f"{name}.json.gz").read_bytes()))
        self.model = TypeAdapter(ModelInfo).validate_python(content["model"])
        self.task = TypeAdapter(TaskInfo).validate_python(content["task"])
        self.rates = replace(TypeAdapter(Rates).validate_python(content["rates"]), load_seconds=0.0, prefix_ratio=0.0)
        self.untouched: Mapping[str, float] = content["untouched"]
        host = build_host()
        _, self.strategies, self._grid = table_space(host, name)
        ordered = {key: value for key, value in self._grid.items() if isinstance(value, tuple) and _is_numeric(value)}
        self._levels = {key: tuple(float(one) for one in value) for key, value in ordered.items()}
        self.wanted = {**self._grid, **{key: _range(key, value) for key, value in ordered.items()}}
        rows = [{**row, "knobs": {**SINCE, **row["knobs"]}} for row in content["plans"]]
        by_plan = {self._on_grid(row["knobs"]).plan.key(): row["rungs"] for row in rows}
        combinations = grid(self.strategies, self.model, self.task, self._grid, equal=True)
        self._rows = {self._key(one.values): by_plan[one.plan.key()] for one in combinations}
        self.recorded: list[Mapping[str, Scalar]] = [row["knobs"] for row in rows]
        full = [dict(zip(KEPT, rungs[0], strict=True)) for rungs in self._rows.values()]
        self.best = area(full)
        self.budget = TRIALS * mean(one["seconds"] for one in full)

    def _key(self, knobs: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        return tuple(knobs[name] for name, value in sorted(self._grid.items()) if isinstance(value, tuple))

    def _on_grid(self, knobs: Mapping[str, Scalar]) -> Composed:
        return compose(self.strategies, fixed_values(knobs), self.model, self.task, self._grid)

    def compose(self, source: ValueSource) -> Composed:
        """Compose a plan of the space, between the grid's values too."""
        return compose(self.strategies, source, self.model, self.task, self.wanted)

    def key(self, one: Composed) -> tuple[Scalar, ...]:
        """Return the grid's plan next to one: each number rounded to the nearest level."""
        return self._key({name: self._rounded(name, value) for name, value in one.values.items()})

    def _rounded(self, name: str, value: Scalar) -> Scalar:
        if name not in self._levels or isinstance(value, str):
            return value
        scale: Callable[[float], float] = math.log if name in LOGARITHMIC else float
        return min(self._levels[name], key=lambda level: abs(scale(level) - scale(value)))

    def scores(self, one: Composed, rung: int) -> dict[str, float]:
        """Return what was recorded of a plan on a rung."""
        return dict(zip(KEPT, self._rows[self.key(one)][rung], strict=True))


def _is_numeric(values: tuple[Scalar, ...]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _range(name: str, levels: tuple[Any, ...]) -> Wanted:
    if name == "freeze.trainable_blocks" or len(levels) < 3:
        return levels
    return Numeric(name, min(levels), max(levels), whole=False, log=name in LOGARITHMIC)


class Replay:
    """One arm on one table with one seed."""

    def __init__(self, table: Table, seed: int, *, floor: float) -> None:
        self.table, self.seed, self.floor = table, seed, floor
        self.clock, self.records, self.curve = Clock(), list[TrialRecord](), [(0.0, 0.0)]
        self._seen: dict[Any, int] = {}
        self.asking = 0.0
        objectives = [one for one in OBJECTIVES if one.unit == "%"]
        self.setting = Replayed(
            strategies=table.strategies, objectives=objectives, wanted=table.wanted, sampler="tpe", seed=seed,
            deterministic=False, model=table.model, task=table.task, rates=table.rates,
            limits=Budget(time_seconds=table.budget), end=math.inf, folder=Path(), clock=self.clock,
            budget=table.budget,
        )  # fmt: skip

    @property
    def over(self) -> bool:
        """Whether the budget is spent, or the last plans were all tried before."""
        last = self.records[-REPEATS:]
        idle = len(last) == REPEATS and all(one.same_as is not None for one in last)
        return self.clock.seconds >= self.table.budget or idle

    def first(self) -> list[Composed]:
        """Return the plans that every arm begins with."""
        return list({self.table.key(one): one for one in anchors(self.setting, self.table.compose)}.values())

    def seen(self, one: Composed, rung: int) -> bool:
        """Return whether a plan was tried on a rung."""
        return (self.table.key(one), rung) in self._seen

    def run(self, number: int, one: Composed, rung: int, promoted: int | None = None) -> TrialRecord:
        """Look a plan up, let the clock go on, and note the front."""
        values, key = self.table.scores(one, rung), (self.table.key(one), rung)
        same = self._seen.setdefault(key, number)
        spent = values["seconds"] if same == number else 0.0
        self.clock.seconds += spent
        record = TrialRecord(
            number, "done", at_rung(one.plan, rung), dict(one.values), values, spent_seconds=spent,
            same_as=None if same == number else same, rung=rung, promoted=promoted,
        )  # fmt: skip
        self.records.append(record)
        if rung == 0 and self.clock.seconds <= self.table.budget:
            size = area(record.values for record in self.records if record.rung == 0)
            if size > self.curve[-1][1]:
                self.curve.append((self.clock.seconds, size))
        return record

    def regret(self, share: float) -> float:
        """Return the regret after a share of the budget."""
        had = max(size for when, size in self.curve if when <= share * self.table.budget)
        return 1.0 - had / self.table.best


def study_of(replay: Replay, sampler: BaseSampler | None = None) -> optuna.Study:
    """Return a study in memory."""
    return optuna.create_study(directions=[one.optuna_direction for one in replay.setting.objectives], sampler=sampler)


def ours(table: Table, sampler: str, seed: int) -> Replay:
    """Replay the search of `tuner.run`; the tables' trainings cannot be continued."""
    replay = Replay(table, seed, floor=max(table.task.most_frequent, table.untouched.get("local_accuracy", 0.0)))
    setting = replace(replay.setting, sampler=sampler)
    study, tried = study_of(replay), dict[int, Composed]()

    def expected(one: Composed, rung: int) -> float:
        return math.inf if replay.seen(one, rung) else table.scores(one, rung)["expected"]

    ladder = Ladder(setting, lambda record, rung: expected(tried[record.config], rung))
    first = replay.first()
    ladder.lowest, ladder.floor = lowest_rung([one.plan for one in first], setting), replay.floor
    structures = Structures(setting, table.compose, expected, lambda _rung: 0.0)
    queue = Queue(study, setting, ())
    candidates = Candidates(queue, setting, table.compose, structures)
    if candidates.weighs:
        structures.begin(first)
    for one in () if candidates.weighs else first:
        study.enqueue_trial(one.searched)
    while not replay.over:
        begun = time.perf_counter()
        if not queue.has_waiting():
            ladder.climb(replay.records)
            promotion = ladder.next(replay.records)
            if promotion is not None:
                place = {RUNG: promotion.rung, PROMOTED: promotion.record.config}
                study.enqueue_trial(tried[promotion.record.config].searched, place)
            else:
                best = structures.next(replay.records, ladder.lowest, setting.seconds_left) or candidates.best(
                    lambda one: expected(one, ladder.lowest), lambda _one: True, replay.records, ladder.lowest
                )
                if best is not None:
                    study.enqueue_trial(best.searched, {RUNG: ladder.lowest})
        trial = next_trial(study, sampler, seed, ladder.lowest)
        one = table.compose(optuna_values(trial))
        replay.asking += time.perf_counter() - begun
        tried.setdefault(trial.number, one)
        record = replay.run(trial.number, one, trial.user_attrs[RUNG], trial.user_attrs.get(PROMOTED))
        tell(study, trial, record, setting.objectives, replay.floor)
    return replay


def plain(table: Table, sampler: Callable[[int], BaseSampler], seed: int, *, halving: bool) -> Replay:
    """Replay Optuna's sampler: every trial on the top rung, or promoted by asynchronous successive halving."""
    replay = Replay(table, seed, floor=0.0)
    study = study_of(replay, sampler(seed))
    lowest, tried = HALVING_RUNGS if halving else 0, dict[int, Composed]()
    objectives = replay.setting.objectives
    for one in replay.first():
        study.enqueue_trial(one.searched)
    while not replay.over:
        promotion = next(promotions(replay.records, lowest, objectives), None)
        if promotion is not None:
            record, rung = promotion
            replay.run(10**6 + len(replay.records), tried[record.config], rung, record.config)
            continue
        begun = time.perf_counter()
        trial = study.ask()
        one = tried[trial.number] = table.compose(optuna_values(trial))
        replay.asking += time.perf_counter() - begun
        values = replay.run(trial.number, one, lowest).values
        study.tell(trial, [values[objective.name] for objective in objectives])
    return replay


def promotions(
    records: Sequence[TrialRecord], lowest: int, objectives: Sequence[Objective]
) -> Iterator[tuple[TrialRecord, int]]:
    """Yield the trials that are among the best of their rung, one in `ETA`, and not promoted yet; and where to."""
    for rung in range(1, lowest + 1):
        above = {record.config for record in records if record.rung < rung}
        best = ranked(records, rung, objectives)
        yield from ((record, rung - 1) for record in best[: len(best) // ETA] if record.config not in above)
