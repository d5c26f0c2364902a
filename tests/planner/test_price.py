"""Seconds of a plan: what is done once a trial counts in addition to its epochs."""

import math
from dataclasses import replace

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.parts import CachePlan, LossTerm, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import weight_bytes
from tuner.planner.device import UNSCALED_BYTES, FirstSteps, nominal, unscaled_bytes
from tuner.planner.price import START_SECONDS, price
from tuner.planner.tail_terms import solving_bytes, worth_planning


def plan_of(saved_bytes: int, split: int = 0, micro_batches: int = 1, memory: int = 10**9) -> TrialPlan:
    """Return a plan where memory is limited, or none is where `memory` is 0."""
    model = example_model(4)
    blocks = tuple(replace(block, saved_bytes=saved_bytes) for block in model.blocks)
    plan = TrialPlan(replace(model, blocks=blocks), example_task(), split=split)
    runtime = replace(plan.runtime, memory_bytes=memory)
    return replace(plan, recipe=replace(plan.recipe, micro_batches=micro_batches), runtime=runtime)


@pytest.mark.parametrize(
    ("plan", "seconds"),
    [
        (plan_of(2_000_000), 4 * 0.5),
        (plan_of(2_000_000, split=1), 3 * 0.5),
        (plan_of(20_000_000, micro_batches=2), 2 * 4 * 0.5),  # two forms of step
        (plan_of(1_000), 0.0),  # so small that the eager loop trains it
        (plan_of(2_000_000, memory=0), 0.0),  # it would take less memory, but more time
        (plan_of(20_000_000, memory=0), 4 * 0.5),
    ],
)
def test_tracing_counts_in_what_a_trial_is_expected_to_take(plan: TrialPlan, seconds: float) -> None:
    rates = nominal(plan.model)
    without, traced = (price(plan, replace(rates, trace_seconds=trace)).estimate() for trace in (0.0, 0.5))
    assert traced.spend_seconds - without.spend_seconds == pytest.approx(seconds)
    assert traced.train_seconds - without.train_seconds == pytest.approx(seconds)


def test_a_teacher_takes_one_forward_pass_of_the_tail_over_all_training_samples() -> None:
    plan = plan_of(1_000, split=1)
    rates = nominal(plan.model)
    term, taught = (replace(plan, loss=(LossTerm("a", 1.0, teacher=teacher),)) for teacher in (False, True))
    without, alone, extra = (price(one, rates).loop_seconds for one in (plan, term, taught))
    reading = price(plan, rates).fill_seconds  # nothing is stored
    assert alone == without
    assert extra - without == pytest.approx(plan.train_samples * (sum(rates.forward_seconds[1:]) + reading))


def test_an_optimiser_of_a_plugin_counts_as_one_with_two_moments_and_is_not_planned() -> None:
    plan = plan_of(20_000_000)
    adam, lion = (replace(plan, recipe=RecipePlan(optimiser=name)) for name in ("adam", "lion"))
    rates = nominal(plan.model)
    assert price(lion, rates).peak_bytes == price(adam, rates).peak_bytes
    assert worth_planning(adam)
    assert not worth_planning(lion)


def test_memory_counts_what_the_first_step_of_a_cut_touches() -> None:
    first = FirstSteps((40_000_000, 30_000_000, 20_000_000, 10_000_000), (0.4, 0.3, 0.2, 0.1))
    for split in (0, 1, 3):
        plan = replace(plan_of(1_000, split=split), cache=CachePlan("cache", 8) if split else CachePlan())
        rates = replace(nominal(plan.model), fill_peak_bytes=0)
        known = replace(rates, first=first)
        written = weight_bytes(plan)  # the file holds the weights once more
        assert price(plan, known).peak_bytes - price(plan, rates).peak_bytes == first.library_bytes[split] + written
        later = price(plan, known).train_seconds - price(plan, rates).train_seconds
        assert later == pytest.approx(first.seconds[split] + START_SECONDS)


def test_a_prefix_that_runs_before_every_step_touches_the_whole_model() -> None:
    plan, first = plan_of(1_000, split=2), FirstSteps((40_000_000, 30_000_000, 20_000_000, 10_000_000), (0.0,) * 4)
    rates = replace(nominal(plan.model), first=first, fill_peak_bytes=unscaled_bytes(plan.model) + 45_000_000)
    assert price(plan, rates).library_bytes == rates.scratch_bytes + 40_000_000
    stored = replace(plan, cache=CachePlan("cache", 8))
    assert price(plan, rates).tensor_bytes - price(stored, rates).tensor_bytes == 5_000_000  # above the libraries' own


def test_a_small_models_filling_holds_no_more_than_all_of_its_outputs() -> None:
    model = plan_of(1_000).model
    values = sum(math.prod(block.in_shape) for block in model.blocks[1:])
    assert unscaled_bytes(model) == 2 * 256 * 4 * values < UNSCALED_BYTES
    large = replace(model, blocks=tuple(replace(block, in_shape=(64, 80, 80)) for block in model.blocks))
    assert unscaled_bytes(large) == UNSCALED_BYTES


def test_solving_for_the_head_again_takes_memory_when_the_steps_are_over() -> None:
    plan = plan_of(100, split=2)
    again = replace(plan, recipe=replace(plan.recipe, solve_again=True))
    rates, features = nominal(plan.model), math.prod(plan.model.blocks[-1].in_shape)
    trained, solved = (price(one, rates).tensor_bytes for one in (plan, again))
    solving = solving_bytes(again)
    assert solving > 8 * (features**2 + plan.train_samples * features)
    assert trained < solved < trained + solving  # what the steps kept is free by then
    larger = replace(plan.model.blocks[-1], in_shape=(4096,))  # more features than are solved for
    model = replace(plan.model, blocks=(*plan.model.blocks[:-1], larger))
    assert solving_bytes(replace(again, model=model)) == 0
