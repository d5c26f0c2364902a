"""The training that a task asks for, as the first plan."""

from dataclasses import replace

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.parts import CachePlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import StrategyError, compose
from tuner.plugin.core import build_host, given_plans, with_given
from tuner.plugin.sources import preferred_values
from tuner.task.task import GivenTraining

RECIPE = RecipePlan(epochs=1500, batch_size=7, optimiser="sgd", schedule="constant", momentum=0.0)


def first_plan(frozen: int) -> TrialPlan:
    strategies = with_given(list(build_host().strategies.values()), GivenTraining(RECIPE, frozen))
    (values,) = given_plans(strategies)
    return compose(strategies, preferred_values(values), example_model(4), example_task()).plan


def test_the_plan_is_what_the_task_asks_for_whatever_takes_part() -> None:
    plan = first_plan(0)
    assert (plan.split, plan.recipe, plan.cache) == (0, RECIPE, CachePlan())
    assert (plan.shape, plan.loss, plan.heads.exits) == ((), (), ())


def test_its_frozen_layers_are_the_first_blocks() -> None:
    blocks = example_model(4).blocks
    assert first_plan(blocks[0].parameters + blocks[1].parameters).split == 2
    with pytest.raises(StrategyError, match="1 parameters that are to be frozen end within a block"):
        first_plan(1)


def test_nothing_is_added_where_a_task_asks_for_nothing_or_no_strategy_cuts() -> None:
    strategies = list(build_host().strategies.values())
    assert with_given(strategies, None) == strategies
    cutting = [strategy for strategy in strategies if strategy.stage != "split"]
    assert given_plans(with_given(cutting, GivenTraining(RECIPE))) == ()


def test_settings_without_effect_leave_a_plan_as_it_is() -> None:
    plan = first_plan(0)
    assert plan.recipe.further == {"momentum": 0.0}
    assert "momentum" in plan.settings()["recipe"]
    assert "beta1" not in plan.settings()["recipe"]
    assert plan.key() != replace(plan, recipe=replace(plan.recipe, momentum=0.9)).key()
