"""Memory known before a trial runs: the planner's figure, and what trials took in addition."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tuner.errors import TunerError
from tuner.plan.parts import CachePlan, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.planner import cost
from tuner.planner.device import nominal
from tuner.planner.memory.lifetimes import Tensor
from tuner.planner.memory.step import StepPlan
from tuner.results.config import Budget
from tuner.results.records import TrialRecord
from tuner.search.forecast import BESIDE_BYTES, BESIDE_WITH_PREFIX_BYTES, Forecast, with_memory_limit
from tuner.search.processes.remote import RemoteSession
from tuner.search.study import Study
from tuner.testing import example_model, example_task
from tuner_growth import GROWS

Begin = Callable[..., Study]
PLANNED = 90_000_000


class Planner(RemoteSession):
    """A session that plans every step at `PLANNED` bytes."""

    def __init__(self) -> None:
        self.asked: list[TrialPlan] = []

    def plan_step(self, plan: TrialPlan) -> StepPlan:
        self.asked.append(plan)
        return StepPlan((Tensor("a", PLANNED, 0, 0, "saved"),), ("forward",), 1)


def plan_of(split: int = 0, **recipe: Any) -> TrialPlan:
    model = example_model(4)
    blocks = tuple(replace(block, saved_bytes=1_000_000) for block in model.blocks)
    plan = TrialPlan(replace(model, blocks=blocks), example_task(), split=split)
    return replace(plan, recipe=replace(plan.recipe, **recipe))


def record(plan: TrialPlan, measured: float) -> TrialRecord:
    return TrialRecord(trial=0, state="done", plan=plan, values={"peak_bytes": measured})


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def ask(begin: Begin, planner: Planner) -> Callable[..., int | None]:
    def asking(plan: TrialPlan, records: Sequence[TrialRecord] = (), memory: int | None = 300_000_000) -> int | None:
        study = begin(deterministic=False)
        setting = replace(study._setting, limits=Budget(memory_bytes=memory), rates=nominal(plan.model))
        forecast = Forecast(setting, {"torch": planner})
        for one in records:
            if one.plan is not None:
                forecast.planned_peak(one.plan, [])
        return forecast.planned_peak(plan, records)

    return asking


def test_a_large_step_is_expected_to_take_what_the_planner_says(ask: Callable[..., int | None]) -> None:
    assert ask(plan_of()) == PLANNED + BESIDE_BYTES


def test_memory_that_trials_took_in_addition_to_their_steps_is_learned(ask: Callable[..., int | None]) -> None:
    took = [record(plan_of(batch_size=size), PLANNED + beside) for size, beside in ((30, 5e6), (31, 7e6))]
    assert ask(plan_of(), took) == PLANNED + 7_000_000


def test_a_prefix_before_every_step_takes_its_own(ask: Callable[..., int | None]) -> None:
    plan = plan_of(split=1)
    filling = nominal(plan.model).fill_peak_bytes
    expected = max(PLANNED, filling) + BESIDE_WITH_PREFIX_BYTES
    assert ask(plan) == expected
    assert ask(plan, [record(plan_of(batch_size=30), PLANNED + 1e6)]) == expected  # a trial without one tells nothing
    assert ask(plan, [record(plan_of(split=1, batch_size=30), expected + 1e6)]) == expected + 1_000_000
    cached = replace(plan, cache=CachePlan("cache", 8, 0.0))
    assert ask(cached) == max(PLANNED + BESIDE_BYTES, filling)


def test_a_form_of_step_is_planned_once(ask: Callable[..., int | None], planner: Planner) -> None:
    ask(plan_of(), [record(plan_of(epochs=3, learning_rate=0.1), PLANNED + 1.0)])
    assert len(planner.asked) == 1
    ask(plan_of(), [record(plan_of(optimiser="sgd"), PLANNED + 1.0)])
    assert len(planner.asked) == 3


def growing() -> TrialPlan:
    return replace(plan_of(batch_size=8), shape=(TailEdit("grow-tail", (), GROWS),))


def test_a_tail_that_grows_is_expected_to_take_what_it_starts_with(
    ask: Callable[..., int | None], planner: Planner
) -> None:
    rough = cost.peak_bytes(growing(), nominal(growing().model))
    assert ask(growing(), memory=rough - 1) == PLANNED + BESIDE_BYTES
    assert ask(growing(), memory=rough) is None  # its full width fits
    assert len(planner.asked) == 1


def test_memory_that_a_grown_trial_took_is_not_used_for_others(ask: Callable[..., int | None]) -> None:
    assert ask(plan_of(), [record(growing(), PLANNED + 200_000_000.0)]) == PLANNED + BESIDE_BYTES


def test_a_tail_that_grows_gets_the_limit_and_stays_the_same_plan(begin: Begin) -> None:
    setting = replace(begin()._setting, limits=Budget(memory_bytes=5), deterministic=False)
    limited = with_memory_limit(growing(), setting)
    assert limited.runtime.memory_bytes == 5
    assert limited.key() == growing().key()
    assert with_memory_limit(plan_of(), setting) == plan_of()
    assert with_memory_limit(growing(), replace(setting, deterministic=True)) == growing()


@pytest.mark.parametrize(
    ("plan", "memory"),
    [
        (plan_of(), None),  # nothing to keep to
        (plan_of(batch_size=8), 300_000_000),  # too small to be planned
        (plan_of(), 20_000_000),  # far over the limit, whatever a planner does
    ],
)
def test_elsewhere_the_rough_estimate_does(
    plan: TrialPlan, memory: int | None, ask: Callable[..., int | None], planner: Planner
) -> None:
    assert ask(plan, memory=memory) is None
    assert planner.asked == []


def test_a_planner_that_fails_leaves_the_rough_estimate(
    ask: Callable[..., int | None], planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> StepPlan:
        raise TunerError("too slow")

    monkeypatch.setattr(planner, "plan_step", fail)
    assert ask(plan_of()) is None
