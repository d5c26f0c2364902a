"""What a trial takes whose step is planned: the step, what tracing leaves, and a prefix that runs in between."""

from dataclasses import replace

import pytest

from tests.search.estimate.test_forecast import growing, plan_of
from tuner.plan.parts import CachePlan
from tuner.planner.device import FirstSteps, Rates, nominal, unscaled_bytes
from tuner.planner.memory.placement import Tensor
from tuner.planner.memory.step import StepPlan
from tuner.planner.price import price
from tuner.search.estimate.step_memory import LINE_BYTES, expected_bytes

SCRATCH = 8_000_000


def step_of(lines: int, saved: int, library: int = 30_000_000) -> StepPlan:
    tensors = (Tensor("code", library, 0, lines - 1, "library"), Tensor("map", saved, 0, 0, "saved"))
    return StepPlan(tensors, tuple(map(str, range(lines))), 1)


@pytest.fixture
def rates() -> Rates:
    made_up = nominal(plan_of().model)
    filling = unscaled_bytes(plan_of().model) + 70_000_000
    return replace(made_up, fill_peak_bytes=filling, scratch_bytes=SCRATCH, first=FirstSteps((20_000_000,) * 4))


def test_libraries_are_counted_once_and_tracing_by_the_lines_of_the_step(rates: Rates) -> None:
    short, long = (expected_bytes(plan_of(), step_of(lines, 60_000_000), rates) for lines in (100, 500))
    assert short == 90_000_000 + SCRATCH + 100 * LINE_BYTES
    assert long - short == 400 * LINE_BYTES


def test_a_prefix_before_every_step_runs_next_to_what_lasts(rates: Rates) -> None:
    plan, rest = plan_of(split=1), SCRATCH + 100 * LINE_BYTES
    assert expected_bytes(plan, step_of(100, 20_000_000), rates) == 30_000_000 + 70_000_000 + rest
    assert expected_bytes(plan, step_of(100, 500_000_000), rates) == 530_000_000 + rest


def test_a_prefix_whose_outputs_are_stored_runs_apart(rates: Rates) -> None:
    plan = replace(plan_of(split=1), cache=CachePlan("cache", 8, 0.0))
    assert expected_bytes(plan, step_of(100, 20_000_000), rates) == rates.fill_peak_bytes
    assert expected_bytes(plan, step_of(100, 500_000_000), rates) == 530_000_000 + SCRATCH + 100 * LINE_BYTES


def test_of_a_tail_that_grows_the_libraries_come_in_addition(rates: Rates) -> None:
    expected = expected_bytes(growing(), step_of(2, 60_000_000, library=0), rates)
    assert expected == 60_000_000 + price(growing(), rates).library_bytes == 60_000_000 + SCRATCH + 20_000_000
