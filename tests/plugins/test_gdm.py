"""The strategy of global dataset mixing."""

from dataclasses import replace

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.parts import DataPlan
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import compose
from tuner.plugin.sources import preferred_values
from tuner_gdm import GlobalDatasetMixing, Knobs


@pytest.mark.parametrize(("alpha", "samples"), [(0.0, 0), (1e-6, 7), (0.01, 7), (0.05, 35), (0.1, 70)])
def test_a_fraction_of_every_class_is_mixed_in(alpha: float, samples: int) -> None:
    plan = GlobalDatasetMixing().apply(TrialPlan(example_model(4), example_task()), Knobs(alpha))
    assert plan.global_samples == samples
    assert plan.train_samples == 40 + samples


@pytest.mark.parametrize(("largest", "most"), [(30, 1.0), (100, 0.4), (5000, 0.1)])
def test_a_small_global_set_may_be_mixed_in_whole(largest: int, most: float) -> None:
    task = replace(example_task(), local_train=1, global_per_class=(5, largest))
    alpha = compose([GlobalDatasetMixing()], preferred_values({}), example_model(4), task).knobs["gdm.alpha"]
    assert str(alpha) == f"gdm.alpha in [0, {most:g}]"


@pytest.mark.parametrize(
    ("local", "flops", "most"), [(10, 10**6, 0.1), (50, 10**6, 0.5), (500, 10**6, 1.0), (500, 10**9, 0.1)]
)
def test_more_may_be_mixed_in_of_what_is_little_next_to_the_local_samples_and_cheap(
    local: int, flops: int, most: float
) -> None:
    known = replace(example_task(), local_train=local, global_per_class=(500, 500))
    model = example_model(4)
    model = replace(model, blocks=tuple(replace(block, flops=flops // 4) for block in model.blocks))
    alpha = compose([GlobalDatasetMixing()], preferred_values({}), model, known).knobs["gdm.alpha"]
    assert str(alpha) == f"gdm.alpha in [0, {most:g}]"


def test_without_global_data_every_fraction_is_the_same_plan() -> None:
    task = replace(example_task(), global_per_class=(), global_val=0)
    plans = [
        compose([GlobalDatasetMixing()], preferred_values({"gdm.alpha": alpha}), example_model(4), task).plan
        for alpha in (0.0, 0.1)
    ]
    assert plans[0] == plans[1]
    assert plans[0].data == DataPlan()
