"""The part of a plan that says which samples train: fractions, choices, folds, and all of them again."""

from dataclasses import replace
from typing import Any

import pytest

from tests.plan.plans import PLAN, mixed
from tests.search.settings import setting
from tuner.errors import PlanError
from tuner.plan.info import per_class_counts
from tuner.plan.parts import DataEdit, DataPlan, RecipePlan
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan, check, normal_form
from tuner.planner.price import price
from tuner.search.rungs import at_rung

EDIT = DataEdit("nearest", (("metric", "cosine"), ("depth", 2)), candidates=3)


def with_edit(alpha: float = 0.05, edit: DataEdit | None = EDIT, share: float = 1.0) -> TrialPlan:
    return replace(PLAN, data=DataPlan(alpha, share, edit))


def folded(folds: int = 3, fold: int = 0) -> TrialPlan:
    return replace(mixed(0.1), data=DataPlan(0.1, folds=folds, fold=fold))


@pytest.mark.parametrize(
    ("alpha", "counts"), [(0.0, (0, 0, 0)), (1e-9, (1, 1, 0)), (0.05, (5, 1, 0)), (1.0, (100, 1, 0))]
)
def test_a_fraction_takes_at_least_one_sample_of_every_class_that_has_any(
    alpha: float, counts: tuple[int, ...]
) -> None:
    assert per_class_counts((100, 1, 0), alpha) == counts


def test_only_what_a_plan_has_is_written() -> None:
    assert mixed(0.1).settings()["data"] == {"alpha": 0.1}
    assert folded().settings()["data"] == {"alpha": 0.1, "folds": 3}
    assert folded(fold=2).settings()["data"] == {"alpha": 0.1, "folds": 3, "fold": 2}
    assert "edit" not in to_toml(mixed(0.05))
    assert "+ 35 global images (α 5 %, realised 5 %, by nearest (depth 2, metric cosine) of 3 each)" in describe(
        with_edit()
    )


def test_settings_are_sorted_scalars() -> None:
    assert EDIT.settings == (("depth", 2), ("metric", "cosine"))
    assert DataEdit("nearest", (("b", 1), ("a", "x"), ("a", 2))).settings == (("a", "x"), ("a", 2), ("b", 1))
    strange: Any = (("layers", [1, 2]),)
    with pytest.raises(PlanError, match="data edit 'nearest': settings must be pairs"):
        DataEdit("nearest", strange)
    with pytest.raises(PlanError, match=r"unknown key 'data\.edit\.candidate' \(did you mean 'candidates'\?\)"):
        from_toml(to_toml(with_edit()).replace("candidates = 3", "candidate = 3"))


def test_candidates_are_a_larger_fraction() -> None:
    plan = with_edit()
    assert plan.pool_samples == plan.local_samples + 3 * plan.global_samples
    assert with_edit(0.5).data.pool == DataPlan(1.0)
    assert with_edit(0.5, share=0.5).pool_samples < with_edit(0.5).pool_samples
    assert mixed(0.05).pool_samples == mixed(0.05).train_samples


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1e-6])
def test_where_nothing_is_to_choose_there_is_no_choice(alpha: float) -> None:
    assert normal_form(with_edit(alpha)) == normal_form(with_edit(alpha, None))
    assert normal_form(with_edit(edit=replace(EDIT, candidates=1))) == normal_form(mixed(0.05))
    assert normal_form(with_edit()).data.edit == EDIT
    without = replace(PLAN.task, global_per_class=(), global_val=0)
    assert normal_form(replace(with_edit(), task=without)).data == DataPlan()


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


def test_a_refit_learns_what_judged_and_nothing_judges_it() -> None:
    plan = replace(folded(5), recipe=RecipePlan(epochs=20, patience=3, solve_again=True))
    again = plan.refitted(7, solve_again=False)
    assert again.local_samples == PLAN.task.local_train + PLAN.task.local_val
    assert again.global_samples == plan.global_samples
    assert again.local_scored == plan.local_scored  # what the trial was judged by: a bundle shows it
    assert again.recipe == RecipePlan(epochs=7)
    assert again.trainings[0].data.folds == 0
    assert f"all {again.local_samples:,} local" in describe(again)
    assert from_toml(to_toml(again)) == again
    assert plan.refitted(0, solve_again=True).recipe == RecipePlan(epochs=1, solve_again=True)


def test_a_refit_of_a_rung_is_on_all_samples_and_another_task_starts_without_it() -> None:
    again = replace(PLAN, data=replace(PLAN.data, share=0.25)).refitted(2, solve_again=False)
    assert again.data.share == 1
    assert again.carried_to(PLAN.model, PLAN.task).data == PLAN.data
    assert again.key() != normal_form(replace(again, data=PLAN.data)).key()
    with pytest.raises(PlanError, match=r"data\.refit must be false where data\.share"):
        check(replace(again, data=replace(again.data, share=0.5)))
