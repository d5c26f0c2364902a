"""A plan's decisions, carried to another task."""

from dataclasses import replace

import pytest

from tests.plan.plans import PLAN
from tuner.errors import PlanError
from tuner.plan.example import example_model, example_task


def test_decisions_are_carried_to_another_task() -> None:
    task = replace(example_task(), name="another", local_train=7)
    carried = PLAN.carried_to(example_model(20), task)
    assert (carried.task.name, carried.split, carried.recipe) == ("another", 17, PLAN.recipe)


def test_decisions_are_not_carried_to_a_model_of_another_depth() -> None:
    with pytest.raises(PlanError, match="a plan for 20 blocks cannot be used for example, which has 4"):
        PLAN.carried_to(example_model(4), example_task())
