"""The plan of a last training on every local sample."""

from dataclasses import replace

import pytest

from tests.plan.plans import PLAN, mixed
from tuner.errors import PlanError
from tuner.plan.parts import RecipePlan
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import check, normal_form


def test_a_refit_learns_what_judged_and_nothing_judges_it() -> None:
    plan = replace(mixed(0.1), recipe=RecipePlan(epochs=20, patience=3, solve_again=True))
    plan = replace(plan, data=replace(plan.data, folds=5))
    again = plan.refitted(7, solve_again=False)
    assert again.local_samples == PLAN.task.local_train + PLAN.task.local_val
    assert again.global_samples == plan.global_samples
    assert again.local_scored == plan.local_scored  # what the trial was judged by: a bundle shows it
    assert again.recipe == RecipePlan(epochs=7)
    assert again.trainings[0].data.folds == 0
    assert f"all {again.local_samples:,} local" in describe(again)
    assert from_toml(to_toml(again)) == again
    assert plan.refitted(0, solve_again=True).recipe == RecipePlan(epochs=1, solve_again=True)


def test_of_a_rung_it_is_on_all_samples_and_another_task_starts_without_it() -> None:
    lower = replace(PLAN, data=replace(PLAN.data, share=0.25))
    again = lower.refitted(2, solve_again=False)
    assert again.data.share == 1
    assert again.carried_to(PLAN.model, PLAN.task).data == PLAN.data
    assert again.key() != normal_form(replace(again, data=PLAN.data)).key()
    with pytest.raises(PlanError, match=r"data\.refit must be false where data\.share"):
        check(replace(again, data=replace(again.data, share=0.5)))
