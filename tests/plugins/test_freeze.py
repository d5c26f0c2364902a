"""The freeze strategy."""

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner_freeze import Freeze, Knobs


@pytest.mark.parametrize(("trainable", "split", "said"), [(1, 19, "last of 20 blocks"), (20, 0, "the whole model")])
def test_the_last_blocks_train(trainable: int, split: int, said: str) -> None:
    plan = Freeze().apply(TrialPlan(example_model(20), example_task()), Knobs(trainable))
    assert plan.split == split
    assert plan.trainable == trainable
    assert said in describe(plan)
