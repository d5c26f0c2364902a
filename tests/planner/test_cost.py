"""Seconds of a plan: what is done once a trial counts in addition to its epochs."""

from dataclasses import replace

import pytest

from tuner.plan.trial import TrialPlan
from tuner.planner import cost
from tuner.planner.device import nominal
from tuner.testing import example_model, example_task


def plan_of(saved_bytes: int, split: int = 0, micro_batches: int = 1) -> TrialPlan:
    model = example_model(4)
    blocks = tuple(replace(block, saved_bytes=saved_bytes) for block in model.blocks)
    plan = TrialPlan(replace(model, blocks=blocks), example_task(), split=split)
    return replace(plan, recipe=replace(plan.recipe, micro_batches=micro_batches))


@pytest.mark.parametrize(
    ("plan", "seconds"),
    [
        (plan_of(2_000_000), 4 * 0.5),
        (plan_of(2_000_000, split=1), 3 * 0.5),
        (plan_of(20_000_000, micro_batches=2), 2 * 4 * 0.5),  # two forms of step
        (plan_of(1_000), 0.0),  # so small that the eager loop trains it
    ],
)
def test_tracing_counts_in_what_a_trial_is_expected_to_take(plan: TrialPlan, seconds: float) -> None:
    rates = nominal(plan.model)
    without, traced = (cost.estimate(plan, replace(rates, trace_seconds=trace)) for trace in (0.0, 0.5))
    assert traced.spend_seconds - without.spend_seconds == pytest.approx(seconds)
    assert traced.train_seconds - without.train_seconds == pytest.approx(seconds)
