"""Finals: which plans folds judge, and when."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.plan.plans import PLAN
from tests.search.settings import setting
from tuner.machine.awake import CLOCK
from tuner.results.folder import weights_of
from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord, plan_of
from tuner.search.finals import ENOUGH, LATE, MARGIN, REFIT_MARGIN, Finals, has_finals
from tuner.search.propose.checkpoints import Checkpoints
from tuner.search.rungs import FINAL, FINAL_FOLDS, at_rung
from tuner.search.scoring import Baselines
from tuner.task.info import TaskOutline

SECONDS = 10.0


def record(trial: int, blocks: int, local: float, known: float = 0.8, **rest: Any) -> TrialRecord:
    values: Mapping[str, float] = {"local_accuracy": local, "global_accuracy": known}
    return TrialRecord(trial, "done", replace(PLAN, split=20 - blocks), values=dict(values), **rest)


RECORDS = [record(0, 2, 0.90), record(1, 2, 0.91), record(2, 5, 0.89), record(3, 3, 0.5), record(4, 8, 0.95, 0.2)]


@pytest.fixture
def finals() -> Finals:
    task = replace(PLAN.task, local_val=80)
    return Finals(replace(setting(), task=task, has_finals=True), lambda _one, _rung: SECONDS, lambda _rung: 0.7)


def test_the_best_of_each_structure_comes_first_without_what_is_surely_worse_or_forgets(finals: Finals) -> None:
    order = list[int]()
    records = [*RECORDS]
    while (promotion := finals.next(records, 1000.0, lambda: True)) is not None:
        assert promotion.rung == FINAL
        order.append(promotion.record.trial)
        records.append(replace(promotion.record, trial=len(records), rung=FINAL, promoted=promotion.record.trial))
    assert order == [1, 2, 0]


def test_where_the_known_samples_decide_the_pick_takes_part_first(finals: Finals) -> None:
    records = [record(0, 2, 79 / 80, 0.9), record(1, 2, 1.0, 0.8), record(2, 5, 1.0, 0.7)]
    promotion = finals.next(records, 1000.0, lambda: True)
    assert promotion is not None
    assert promotion.record.trial == 0


def test_the_pick_takes_part_first_though_others_have_more_samples_right(finals: Finals) -> None:
    losses = {0: 0.25, 1: 0.20, 2: 0.21}
    records = [record(0, 7, 0.95), record(1, 7, 0.9375), record(2, 12, 0.9375)]
    records = [replace(one, values={**one.values, "local_loss": losses[one.trial]}) for one in records]
    promotion = finals.next(records, 1000.0, lambda: True)
    assert promotion is not None
    assert promotion.record.trial == 2, "of 80 samples, losses of 0.20 and 0.21 cannot be told apart: it trained more"


def test_they_begin_in_time_or_where_nothing_else_is_left_to_gain_and_only_where_two_fit(finals: Finals) -> None:
    each = MARGIN * SECONDS
    whole = 3 * each
    assert finals.next(RECORDS, LATE * whole + 1, lambda: False) is None, "the search goes on"
    assert finals.next(RECORDS, LATE * whole + 1, lambda: True) is not None
    assert finals.next(RECORDS, LATE * whole - 1, lambda: False) is not None
    assert finals.next(RECORDS, 2 * each - 1, lambda: False) is None, "one is compared with nothing"
    begun = [*RECORDS, record(5, 2, 0.9, rung=FINAL, promoted=1)]
    for left in (SECONDS + 1, LATE * whole):
        assert finals.next(begun, left, lambda: False) is not None, "one alone is compared with nothing"
    assert finals.next(begun, SECONDS - 1, lambda: False) is None
    begun.append(record(6, 5, 0.89, rung=FINAL, promoted=2))
    assert finals.next(begun, each + 1, lambda: False) is not None, "one more is compared with the others"
    assert finals.next(begun, each - 1, lambda: False) is None, "it may take longer than expected, and be cut off"
    assert finals.next(begun, LATE * whole, lambda: False) is None, "a run that is resumed searches first"


def test_more_than_two_take_part_only_where_they_leave_most_of_the_time_to_the_search() -> None:
    one = replace(setting(), task=replace(PLAN.task, local_val=80), has_finals=True)
    for seconds, expected in ((300.0, 3), (80.0, 2)):
        limits = replace(one.limits, time_seconds=seconds)
        finals = Finals(replace(one, limits=limits), lambda _one, _rung: SECONDS, lambda _rung: 0.7)
        assert finals.reserve(RECORDS, seconds) == expected * MARGIN * SECONDS


def test_where_they_take_little_of_the_time_they_come_first_the_cheapest_ahead_and_the_search_goes_on_there() -> None:
    task = replace(PLAN.task, local_val=80)
    seconds = {1: 2 * SECONDS, 2: SECONDS, 4: 50 * SECONDS}
    tried = [record(1, 2, 0.91), record(2, 5, 0.89), record(4, 8, 0.90)]
    limits = replace(setting().limits, time_seconds=20 * SECONDS)
    one = replace(setting(), task=task, has_finals=True, limits=limits, end=CLOCK.now() + 20 * SECONDS)
    finals = Finals(one, lambda one, _rung: seconds.get(one.trial, SECONDS), lambda _rung: 0.7)
    records, order, left = tried, list[int](), 10 * SECONDS
    assert finals.next(records, 16 * SECONDS, lambda: False) is None, "a fourth of the time is for trying plans"
    assert finals.next(records, 8 * SECONDS, lambda: False) is None, "two of three structures take more than a third"
    while (promotion := finals.next(records, left, lambda: False)) is not None:
        assert not finals.go_on(records), "one alone is compared with nothing" if order else "there is nothing yet"
        order.append(promotion.record.trial)
        left -= seconds[promotion.record.trial]
        spent = seconds[promotion.record.trial]
        records = [*records, replace(promotion.record, trial=9 + len(order), rung=FINAL, spent_seconds=spent)]
    assert order == [2, 1], "the deepest takes too long"
    assert finals.go_on(records)
    assert not finals.reserve(records, left), "what is tried from now on is cross-validated"
    off = Finals(replace(one, has_finals=False), lambda _one, _rung: SECONDS, lambda _rung: 0.7)
    assert not off.go_on(records), "a run that is resumed with a limit on trials"
    dear = [*records, record(20, 12, 0.95), record(21, 15, 0.93)]
    seconds |= {20: 50 * SECONDS, 21: SECONDS}
    promotion = finals.next(dear, 2 * MARGIN * SECONDS, lambda: True)
    assert promotion is not None
    assert promotion.record.trial == 21, "there is time for no better one"
    slow = [replace(each, spent_seconds=5 * SECONDS) for each in records]
    assert not finals.go_on(slow), "a fourth of what is left for each"


@pytest.mark.parametrize(("samples", "folds", "pays"), [(ENOUGH - 1, 4, True), (ENOUGH, 4, False), (80, 3, False)])
def test_they_pay_where_few_samples_validate_and_the_others_can_be_divided(
    samples: int, folds: int, pays: bool
) -> None:
    task = cast("TaskOutline", SimpleNamespace(info=replace(PLAN.task, local_val=samples), most_folds=folds))
    assert has_finals(task) is pays


def test_what_few_samples_put_behind_a_cheaper_one_by_chance_may_be_picked_while_its_weights_are_there(
    tmp_path: Path,
) -> None:
    one = replace(setting(), task=replace(PLAN.task, local_val=80), folder=tmp_path)
    finals = Finals(one, lambda _one, _rung: SECONDS, lambda _rung: 0.7)
    losses = {0: (0.95, 0.27), 1: (0.9375, 0.19), 2: (0.8, 0.1)}
    records = [
        replace(tried, plan=replace(plan_of(tried), task=one.task), values={**tried.values, "local_loss": loss})
        for trial, (local, loss) in losses.items()
        for tried in [record(trial, 7 + 5 * trial, local)]
    ]
    given = cast("Baselines", SimpleNamespace(on=lambda _rung: {"local_accuracy": 0.1, "global_accuracy": 0.8}))
    assert finals.front(records, given) == [0]
    for trial in losses:
        file = weights_of(tmp_path, trial)
        file.parent.mkdir(parents=True)
        file.touch()
    assert finals.front(records, given) == [0, 1], "a standard error is 2.4 points"
    shared = Finals(replace(one, kind="a"), lambda _one, _rung: SECONDS, lambda _rung: 0.7)
    assert shared.front(records, given) == [0], "weights of a study's trials are in several folders"


def test_time_is_kept_for_them_and_they_do_not_begin_without_the_best_plan() -> None:
    task = replace(PLAN.task, local_val=80)
    seconds = {1: 10 * SECONDS}
    finals = Finals(
        replace(setting(), task=task, has_finals=True),
        lambda one, _rung: seconds.get(one.trial, SECONDS),
        lambda _rung: 0.7,
    )
    assert finals.next(RECORDS, 5 * SECONDS, lambda: True) is None, "the best takes longer"
    assert finals.reserve(RECORDS, 20 * SECONDS) == 12 * MARGIN * SECONDS
    assert finals.reserve(RECORDS, 13 * SECONDS) == 0, "there would be no time for anything else"


def test_time_is_kept_to_refit_the_pick_unless_that_takes_too_much_of_it(tmp_path: Path) -> None:
    limits = replace(setting().limits, time_seconds=100.0)
    one = replace(setting(), limits=limits, refits=True, end=CLOCK.now() + 100)
    finals = Finals(one, lambda _one, _rung: SECONDS, lambda _rung: 0.7)
    given = cast("Baselines", SimpleNamespace(on=lambda _rung: {"global_accuracy": 0.8}))
    checkpoints = Checkpoints(lambda number: tmp_path / str(number) / "weights.safetensors")
    for seconds, kept in ((2.0, True), (50.0, False)):
        records = [replace(each, values={**each.values, "train_seconds": seconds}) for each in RECORDS]
        finals.keep_for_refit(records, given, checkpoints)
        plan = plan_of(records[1])
        samples = plan.local_samples + plan.task.local_val + plan.global_samples
        expected = REFIT_MARGIN * seconds * samples / plan.train_samples
        assert one.reserve.seconds == (pytest.approx(expected) if kept else 0), "trial 4 forgets: it is not the pick"
        assert one.seconds_left == pytest.approx(100 - one.reserve.seconds, abs=5)
        assert bool(str(one.reserve)) is kept


def test_the_front_is_of_the_finals_alone_which_all_samples_judge() -> None:
    plan = at_rung(plan_of(RECORDS[0]), FINAL)
    assert plan.data.folds == FINAL_FOLDS
    assert plan.local_scored == plan.task.local_val + plan.task.local_train
    first, second = (replace(record(5 + at, 2, 0.85, rung=FINAL, promoted=at), plan=plan) for at in range(2))
    assert comparable([*RECORDS, first, second]).keys() == {5, 6}
    assert 5 not in comparable([*RECORDS, first]), "one alone is compared with nothing"


def test_a_plan_that_left_a_checkpoint_is_due_its_folds_alone(tmp_path: Path) -> None:
    before = record(7, 2, 0.9)
    recipe = replace(plan_of(before).recipe, schedule="warmup", patience=0)
    before = replace(before, plan=replace(plan_of(before), recipe=recipe))
    plan = at_rung(replace(plan_of(before), recipe=replace(plan_of(before).recipe, epochs=8)), FINAL)
    checkpoints = Checkpoints(lambda trial: tmp_path / str(trial) / "weights.safetensors")
    assert checkpoints.due_folds([before], plan, 7) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "checkpoint.pt").touch()
    due = checkpoints.due_folds([before], plan, 7)
    assert due is not None
    checkpoints.ended(before)
    checkpoints.prune([before, replace(before, trial=8, rung=FINAL, promoted=7), record(9, 2, 0.99)], [8])
    assert (tmp_path / "7" / "checkpoint.pt").exists(), "the export of trial 8 continues it"
    assert (due.recipe.epochs, due.data.folds) == (8 * (FINAL_FOLDS - 1) // FINAL_FOLDS, FINAL_FOLDS)
