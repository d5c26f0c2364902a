"""Rungs: what a plan trains on each, who goes up, the first slice, and what is never compared."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.plan.plans import PLAN, mixed
from tests.search.conftest import Begin
from tests.search.settings import ACCURACIES, setting
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.planner.device import nominal
from tuner.results.records.config import Budget
from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord
from tuner.search import rungs
from tuner.search.fill.filling import Filler
from tuner.search.rungs import LEAST_SLICE, Ladder, Promotion, at_rung, lowest_rung, prepare_slice, ranked
from tuner.search.scoring import Baselines


def record(trial: int, local: float, global_: float, **rest: Any) -> TrialRecord:
    values = {"local_accuracy": local, "global_accuracy": global_, "train_seconds": 1.0, "peak_bytes": 1e6}
    return TrialRecord(trial=trial, state="done", plan=PLAN, values=values, **{"rung": 1, **rest})


def ladder(seconds: float = 1.0, limits: Budget = Budget(), left: float | None = None, lowest: int = 2) -> Ladder:  # noqa: B008 - frozen
    end = None if left is None else time.monotonic() + left
    made = Ladder(setting(limits, end), lambda _record, _rung: seconds)
    made.lowest = lowest
    return made


@pytest.mark.parametrize("plan", [replace(PLAN, recipe=RecipePlan(epochs=30)), replace(mixed(0.1), split=19)])
def test_a_rung_takes_a_share_of_every_partition_and_of_the_epochs(plan: TrialPlan) -> None:
    lower = at_rung(plan, 1)
    assert at_rung(plan, 0) is plan
    assert lower.local_samples == -(-plan.task.local_train // 2)
    assert lower.local_scored == -(-plan.task.local_val // 2)
    assert lower.global_scored == -(-plan.task.global_val // 2)
    assert lower.recipe.epochs <= plan.recipe.epochs
    assert lower.key() != plan.key()
    assert f"{lower.local_samples:,} of {plan.task.local_train:,} local" in describe(lower)
    assert lower.carried_to(plan.model, plan.task).data.share == 1.0


def test_a_rung_of_few_steps_keeps_its_epochs() -> None:
    plan = replace(PLAN, recipe=RecipePlan(epochs=30, batch_size=8), task=replace(PLAN.task, local_train=4000))
    assert at_rung(plan, 2).recipe.epochs == 13
    small = replace(plan, task=replace(plan.task, local_train=64))
    assert at_rung(small, 2).recipe.epochs == 30


def test_scores_of_different_rungs_are_never_compared() -> None:
    low, high = record(0, 0.9, 0.9), record(1, 0.5, 0.5, rung=0, promoted=7)
    assert list(comparable([low])) == [0]
    assert list(comparable([low, high])) == [1]
    over = replace(high, constraint={"memory": 1.0})
    assert list(comparable([low, over])) == [0]


def test_the_best_come_first_and_who_is_below_the_floor_is_left_out() -> None:
    # 0 and 1 are on the front, 2 behind both, 3 behind 2; the floor leaves 4 out, though nothing dominates it.
    records = [record(0, 0.9, 0.5), record(1, 0.5, 0.9), record(2, 0.5, 0.5), record(3, 0.4, 0.4), record(4, 0.1, 1.0)]
    assert [one.trial for one in ranked(records, 1, ACCURACIES, 0.2)][2:] == [2, 3]
    assert {one.trial for one in ranked(records, 1, ACCURACIES, 0.2)} == {0, 1, 2, 3}
    assert ranked(records, 2, ACCURACIES) == []


def test_among_equals_in_rank_the_larger_part_of_the_hypervolume_comes_first() -> None:
    crowded = [record(0, 0.50, 0.90), record(1, 0.51, 0.89), record(2, 0.90, 0.50)]
    assert ranked(crowded, 1, ACCURACIES)[0].trial == 2


def test_one_in_three_goes_up_one_rung_and_only_once() -> None:
    low = [record(number, 0.5 + number / 100, 0.5, rung=2) for number in range(5)]
    assert ladder().next(low[:2]) is None
    assert ladder().next(low) == Promotion(low[4], 1)
    up = record(5, 0.6, 0.5, rung=1, promoted=4)
    assert ladder().next([*low, up]) is None
    refused = replace(up, state="rejected", values={}, reason="--memory")
    assert ladder().next([*low, refused]) is None
    six = [*low, record(5, 0.55, 0.5, rung=2)]  # a plan that another worker tries above is passed over
    assert ladder().next(six, lambda one, rung: (one.trial, rung) == (5, 1)) == Promotion(six[4], 1)
    assert ladder().next(six, lambda _one, _rung: True) is None


def test_the_higher_rung_is_served_first() -> None:
    low = [record(number, 0.5 + number / 100, 0.5, rung=2) for number in range(12)]
    middle = [record(20 + one.trial, 0.6, 0.5, rung=1, promoted=one.trial) for one in low[-3:]]
    promotion = ladder().next([*low, *middle])
    assert promotion == Promotion(middle[0], 0)


def test_before_the_end_and_after_a_third_of_the_time_the_best_goes_to_the_top_at_once() -> None:
    low = [record(number, 0.5 + number / 100, 0.5, rung=2) for number in range(2)]
    assert ladder(seconds=10.0, left=100.0).next(low) is None
    assert ladder(seconds=10.0, left=13.0).next(low) == Promotion(low[1], 0)
    assert ladder(seconds=10.0, left=3.0).next(low) is None
    limits = Budget(time_seconds=90.0)
    assert ladder(limits=limits, left=70.0).next(low[:1]) is None
    assert ladder(limits=limits, left=50.0).next(low[:1]) == Promotion(low[0], 0)
    top = record(1, 0.5, 0.5, rung=0, promoted=0)
    assert ladder(limits=limits, left=50.0).next([low[0], top]) is None


def test_the_lowest_rung_is_left_where_no_time_is_left_for_another_such_promotion() -> None:
    low, above = record(0, 0.8, 0.5, rung=3), record(1, 0.8, 0.5, rung=0, spent_seconds=20.0)
    dear = replace(above, spent_seconds=90.0, state="killed")
    for records, left, expected in (([low, above], 60.0, 3), ([low, above], 15.0, 0), ([low, dear], 15.0, 3)):
        made = ladder(left=left, lowest=3)
        made.leave(records, lambda _rung: 60.0)
        assert made.lowest == expected


def test_the_lowest_rung_follows_from_the_time_there_is() -> None:
    plan = replace(PLAN, data=DataPlan(), task=replace(PLAN.task, local_train=4000))
    slow = replace(setting(end=time.monotonic() + 1e5), rates=replace(nominal(PLAN.model), step_seconds=0.5))
    fast = replace(
        slow,
        rates=replace(
            slow.rates, step_seconds=1e-9, load_seconds=0.0, forward_seconds=(0.0,) * 20, train_seconds=(0.0,) * 20
        ),
    )
    assert lowest_rung([plan], fast) == 0
    assert lowest_rung([plan], slow) == rungs.LOWEST
    assert lowest_rung([plan], replace(slow, rungs=False)) == 0
    assert lowest_rung([plan], replace(slow, limits=Budget(trials=rungs.FEW_TRIALS - 1))) == 0


@pytest.mark.usefixtures("ladder_of_three")
def test_a_study_climbs_and_its_front_is_of_the_top_rung(begin: Begin, stand_in: Any) -> None:
    study = begin(Budget(trials=20))
    study.run()
    by_rung = [sum(one.rung == rung for one in study.records if one.state == "done") for rung in range(3)]
    assert min(by_rung) > 0
    assert by_rung[2] > by_rung[0]
    assert study.records[0].rung == 2
    for one in study.records:
        if one.promoted is not None:
            first = study.records[one.promoted]
            assert first.rung == 2
            assert first.knobs == one.knobs
    assert {study.records[trial].rung for trial in study.front()} == {0}
    shares = {job.arguments["trial"].plan.data.share for job in stand_in.jobs if job.method == "train"}
    assert shares == {1.0, 0.5, 0.25}


@pytest.mark.usefixtures("ladder_of_three")
def test_one_pass_fills_every_cut_that_it_passes_on_its_way(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[TrialPlan, set[int]]] = []
    fill_with = Filler.fill_with

    def spying(self: Filler, plan: TrialPlan, others: Iterable[TrialPlan]) -> None:
        others = list(others)
        passes.append((plan, {one.split for one in others}))
        assert {one.data.share for one in others} <= {plan.data.share}
        fill_with(self, plan, others)

    monkeypatch.setattr(Filler, "fill_with", spying)
    study = begin(Budget(trials=12))
    study.run()
    last = max(one.plan.split for one in study.records if one.plan)
    promoted = [(plan, cuts) for plan, cuts in passes if plan.data.share > 0.25]
    assert promoted
    searched = {one.split for one in study._reachable}
    assert searched == {0, 2, 3}, "the last block, and the model's ladder of cuts"
    assert all({cut for cut in searched if plan.split <= cut <= last} <= cuts for plan, cuts in promoted)


@pytest.mark.usefixtures("ladder_of_three")
@pytest.mark.parametrize("leaves", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_study_that_climbs_and_is_cut_short_goes_on_as_if_it_had_not_been(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    """With `leaves`, it leaves the lower rungs for good on its way."""
    study = begin(Budget(trials=30 if leaves else 16))
    monkeypatch.setattr(rungs, "QUICK_SECONDS", 1e9 if leaves else 0.0)
    monkeypatch.setattr(rungs, "ENOUGH_TRIALS", 2)
    study.run()
    expected = [(one.trial, one.rung, one.promoted, one.knobs) for one in study.records]
    new = [one.rung for one in study.records if one.promoted is None and one.state == "done"]
    assert new == sorted(new, reverse=True)
    assert set(new) == ({0, 1, 2} if leaves else {2})
    monkeypatch.setattr(rungs, "QUICK_SECONDS", 0.0)
    for path in tmp_path.iterdir():
        if path.is_file():
            path.unlink()
    cut = begin(Budget(trials=30 if leaves else 16))
    monkeypatch.setattr(rungs, "QUICK_SECONDS", 1e9 if leaves else 0.0)
    tries = 0
    inner = cut._try

    def interrupted(trial: Any) -> TrialRecord | None:
        nonlocal tries
        tries += 1
        if tries in ({1, 12, 24} if leaves else {1, 5, 9}):
            raise KeyboardInterrupt
        return inner(trial)

    monkeypatch.setattr(cut, "_try", interrupted)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            cut.run()
    again = begin(Budget(trials=30 if leaves else 16))
    again.run()
    assert [(one.trial, one.rung, one.promoted, one.knobs) for one in again.records] == expected


@pytest.mark.usefixtures("ladder_of_three")
def test_no_baselines_are_fitted_on_a_rung_that_the_search_leaves_at_once(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    monkeypatch.setattr(Baselines, "compare", lambda _self, rung: fitted.append(rung))
    study = begin(Budget(trials=12, time_seconds=1e6))
    study.run()
    tried = [one.rung for one in study.records]
    assert tried[:3] == [2, 1, 0], "there is time to fill each next rung"
    assert set(fitted) == {0}


@pytest.mark.usefixtures("ladder_of_three")
def test_forgetting_is_judged_on_the_samples_of_the_rung(begin: Begin) -> None:
    asked: list[float] = []

    def untouched(share: float, folds: int) -> Mapping[str, float]:
        asked.append(share)
        assert not folds
        return {"local_accuracy": 0.0, "global_accuracy": share}

    study = begin(Budget(trials=20, forgetting=0.01), untouched=untouched)
    study.run()
    assert sorted(asked) == [0.25, 0.5, 1.0]
    for one in study.records:
        if one.state == "done":
            drop = 0.5**one.rung - one.values["global_accuracy"]
            assert one.constraint["forget-at-most"] == pytest.approx(drop - 0.01)


WITHIN = 10.0
LARGE = replace(PLAN, task=replace(PLAN.task, local_train=4096, local_val=512))


class Device:
    """A device that takes the same time for every sample, what was computed before included."""

    def __init__(self, seconds_each: float) -> None:
        self.seconds_each, self.seconds = seconds_each, 0.0
        self.passes: list[tuple[int, float]] = []

    def prepare(self, plans: Iterable[TrialPlan], within: float) -> bool:
        samples = next(iter(plans)).read_samples
        needed = samples * self.seconds_each
        self.seconds += min(needed, within)
        self.passes.append((samples, within))
        return needed <= within

    def fits(self, plan: TrialPlan, within: float) -> bool:
        return plan.read_samples * self.seconds_each <= within


def began(plan: TrialPlan, rung: int, device: Device) -> int:
    return prepare_slice(cast("Filler", device), [plan], rung, WITHIN)


@pytest.mark.parametrize("slower", [0.99, 2.5, 5.0, 11.0])
def test_a_device_begins_with_the_largest_slice_that_it_has_time_for(slower: float) -> None:
    device = Device(slower * WITHIN / at_rung(LARGE, 2).read_samples)
    rung = began(LARGE, 2, device)
    assert len(device.passes) == (1 if slower < 1 else 2)  # what the first one showed is enough
    assert device.seconds <= 2 * WITHIN
    assert at_rung(LARGE, rung).read_samples * device.seconds_each <= WITHIN
    assert rung == 2 or at_rung(LARGE, rung - 1).read_samples * device.seconds_each > WITHIN


def test_no_slice_is_too_small_to_tell_plans_apart_however_slow_the_device_is() -> None:
    device = Device(1000 * WITHIN)
    rung = began(LARGE, 2, device)
    assert LEAST_SLICE <= at_rung(LARGE, rung).local_samples < 2 * LEAST_SLICE
    assert [within for _, within in device.passes] == [WITHIN, math.inf]


def test_the_top_rung_and_small_tasks_take_what_they_take() -> None:
    device: Any = Device(1000 * WITHIN)
    assert began(LARGE, 0, device) == 0
    few = replace(PLAN, task=replace(PLAN.task, local_train=LEAST_SLICE))
    assert began(few, 1, device) == 1
    assert [within for _, within in device.passes] == [math.inf, math.inf]
