"""Folds in a plan: how many trainings judge it, on how many samples each."""

from dataclasses import replace

import pytest

from tests.plan.plans import PLAN, mixed
from tests.search.settings import setting
from tuner.errors import PlanError
from tuner.plan.parts import DataPlan
from tuner.plan.trial import TrialPlan, check, normal_form
from tuner.planner.price import price
from tuner.search.rungs import at_rung


def folded(folds: int = 3, fold: int = 0) -> TrialPlan:
    return replace(mixed(0.1), data=DataPlan(0.1, folds=folds, fold=fold))


@pytest.mark.parametrize("folds", [2, 3, 7])
def test_each_local_sample_is_scored_once_by_a_training_without_it(folds: int) -> None:
    plan, task = folded(folds), PLAN.task
    whole, *without = plan.trainings
    assert whole == mixed(0.1)
    assert len(without) == folds
    assert all(one.local_samples + one.local_scored == task.local_train for one in without)
    assert sum(one.local_scored for one in plan.trainings) == task.local_train + task.local_val == plan.local_scored
    assert {one.global_samples for one in plan.trainings} == {whole.global_samples}
    assert {one.global_scored for one in without} == {0}
    assert plan.global_scored == whole.global_scored
    assert plan.read_samples == whole.read_samples
    assert len({one.key() for one in (plan, *plan.trainings)}) == folds + 2


def test_a_trial_costs_all_its_trainings_and_a_result_one() -> None:
    plan, rates = folded(5), setting().rates
    whole, *without = plan.trainings
    once = price(whole, rates).estimate()
    folds = sum(price(one, rates).estimate().spend_seconds for one in without)
    estimate = price(plan, rates).estimate()
    assert estimate.spend_seconds == pytest.approx(once.spend_seconds + folds)
    assert estimate.train_seconds == once.train_seconds
    assert estimate.peak_bytes == once.peak_bytes


def test_only_the_top_rung_has_folds_and_another_task_none() -> None:
    plan = folded()
    assert at_rung(plan, 0) == plan
    assert at_rung(plan, 1) == at_rung(mixed(0.1), 1)
    assert plan.carried_to(plan.model, plan.task) == mixed(0.1)
    assert normal_form(replace(plan, task=replace(plan.task, global_per_class=()))).data == DataPlan(folds=3)


def test_settings_name_folds_only_where_there_are_some() -> None:
    assert folded().settings()["data"] == {"alpha": 0.1, "folds": 3}
    assert folded(fold=2).settings()["data"] == {"alpha": 0.1, "folds": 3, "fold": 2}
    assert mixed(0.1).settings()["data"] == {"alpha": 0.1}


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (DataPlan(folds=1), "data.folds must be 0, or in"),
        (DataPlan(folds=10**6), "data.folds must be 0, or in"),
        (DataPlan(folds=3, share=0.5), "with data.share = 1, got 3"),
        (DataPlan(folds=3, fold=4), r"data.fold must be in \[0, 3\], got 4"),
        (DataPlan(fold=1), r"data.fold must be in \[0, 0\], got 1"),
    ],
)
def test_folds_that_cannot_be_are_refused(data: DataPlan, rule: str) -> None:
    with pytest.raises(PlanError, match=rule):
        check(replace(PLAN, data=data))
