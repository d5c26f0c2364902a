"""Costs known before a trial runs: the planner's figure or the rates, calibrated by finished trials."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.search.conftest import MakeSetting
from tuner.errors import TunerError
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import CachePlan, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FirstSteps, Rates, nominal, unscaled_bytes
from tuner.planner.memory.placement import Tensor
from tuner.planner.memory.step import StepPlan
from tuner.planner.price import price
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.search.estimate.forecast import Expected, Forecast, with_memory_limit
from tuner.search.estimate.step_memory import LINE_BYTES, StepBytes, expected_bytes, planned_bytes
from tuner.search.processes.remote import RemoteSession
from tuner_growth import GROWS

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


def record(plan: TrialPlan, measured: float, trial: int = 0, **more: Any) -> TrialRecord:
    values = {"peak_bytes": measured, "train_seconds": 1.0}
    return TrialRecord(**{"trial": trial, "state": "done", "plan": plan, "values": values, **more})


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def ask(make_setting: MakeSetting, planner: Planner) -> Callable[..., Expected]:
    """Return a function that gives what a plan is expected to cost after the records, each of which was asked for."""

    def asking(plan: TrialPlan, records: Sequence[TrialRecord] = (), memory: int | None = 300_000_000) -> Expected:
        setting = make_setting(Budget(memory_bytes=memory), deterministic=False, rates=nominal(plan.model))
        forecast = Forecast(setting, {"torch": planner})
        known = [replace(one, plan=with_memory_limit(one.plan, setting)) for one in records if one.plan is not None]
        for one in known:
            if one.plan is not None:
                forecast.expected(one.plan, 0, [])
        return forecast.expected(with_memory_limit(plan, setting), 0, known)

    return asking


Ask = Callable[..., Expected]


def planned(plan: TrialPlan) -> int:
    """Return what a plan whose step is planned is expected to take."""
    step = StepPlan((Tensor("a", PLANNED, 0, 0, "saved"),), ("forward",), 1)
    return sum(planned_bytes(plan, StepBytes.of(step), nominal(plan.model)))


def peak(expected: Expected) -> int:
    return expected.estimate.peak_bytes


def took(times: float, count: int, **recipe: Any) -> list[TrialRecord]:
    """Return trials of large steps that took so many times what was expected."""
    plans = [plan_of(batch_size=30 + number, **recipe) for number in range(count)]
    return [record(plan, times * planned(plan), number) for number, plan in enumerate(plans)]


def test_memory_that_trials_measured_moves_the_estimate_and_narrows_its_interval(ask: Ask) -> None:
    first, last = ask(plan_of(), took(0.8, 1)), ask(plan_of(), took(0.8, 12))
    plain = planned(plan_of())
    assert 0.8 * plain < peak(first) < 0.86 * plain
    assert peak(last) == pytest.approx(0.8 * plain, rel=0.01)
    assert first.plain.peak_bytes == last.plain.peak_bytes == plain
    width = [one.high.peak_bytes / one.low.peak_bytes for one in (first, last)]
    assert width[0] > width[1] > 1.05
    assert last.low.peak_bytes < peak(last) < last.high.peak_bytes


def test_before_any_trial_the_estimate_itself_decides(ask: Ask) -> None:
    expected = ask(plan_of())
    assert peak(expected) == planned(plan_of())
    assert expected.estimate == expected.plain == expected.low == expected.high


def test_a_kind_of_plan_that_was_never_tried_is_less_sure(ask: Ask) -> None:
    records = took(1.0, 12)
    known, deeper = ask(plan_of(), records), ask(plan_of(split=1), records)
    assert deeper.high.peak_bytes / peak(deeper) > 1.1 * known.high.peak_bytes / peak(known)


def test_a_trial_that_was_killed_for_its_memory_raises_the_estimate(ask: Ask) -> None:
    plan, plain = plan_of(batch_size=30), planned(plan_of())
    killed = record(plan, 0.0, state="killed", values={}, constraint={"memory": math.log(1.2)})
    assert peak(ask(plan_of(), [killed], memory=plain)) > 1.1 * plain
    late = replace(killed, constraint={"time": 0.1})
    assert peak(ask(plan_of(), [late], memory=plain)) == plain


def test_what_filling_hides_tells_nothing_of_training(ask: Ask) -> None:
    plan = replace(plan_of(split=1, batch_size=4), cache=CachePlan("cache", 8, 0.0))
    least = nominal(plan.model).fill_peak_bytes
    expected = ask(plan, [record(plan, least)])
    assert peak(expected) == expected.high.peak_bytes == expected.plain.peak_bytes == least


def test_a_resumed_study_learns_the_same_from_its_records(ask: Ask) -> None:
    rough = [record(plan_of(batch_size=8 + number), 6e7, number) for number in range(3)]
    assert ask(plan_of(batch_size=8), rough) == ask(plan_of(batch_size=8), json_copies(rough))


def json_copies(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [
        TrialRecord.from_dict(json.loads(json.dumps(one.to_dict())), one.plan)
        for one in records
        if one.plan is not None
    ]


def test_seconds_learn_from_every_trial_but_most_from_their_own_kind(ask: Ask) -> None:
    plan = plan_of(batch_size=8)
    seconds = price(plan, nominal(plan.model)).train_seconds
    slow = [
        record(replace(plan, recipe=replace(plan.recipe, learning_rate=0.01 + number)), 6e7, number)
        for number in range(8)
    ]
    for one in slow:
        one.values["train_seconds"] = 3 * seconds
    same, other = ask(plan, slow), ask(replace(plan, runtime=replace(plan.runtime, backend="other")), slow)
    assert same.estimate.train_seconds == pytest.approx(3 * seconds, rel=0.1)
    assert seconds < other.estimate.train_seconds < same.estimate.train_seconds
    assert ask(plan, [replace(one, state="failed") for one in slow]).estimate.train_seconds == seconds
    assert ask(plan, [replace(one, same_as=0) for one in slow]).estimate.train_seconds == seconds


def test_a_form_of_step_is_planned_once(ask: Ask, planner: Planner) -> None:
    ask(plan_of(), [record(plan_of(epochs=3, learning_rate=0.1), PLANNED + 1.0)])
    assert len(planner.asked) == 1
    ask(plan_of(), [record(plan_of(optimiser="sgd"), PLANNED + 1.0)])
    assert len(planner.asked) == 3


def growing() -> TrialPlan:
    return replace(plan_of(batch_size=8), shape=(TailEdit("grow-tail", (), GROWS),))


def test_a_tail_that_grows_is_expected_to_take_what_it_starts_with(ask: Ask, planner: Planner) -> None:
    rough = price(growing(), nominal(growing().model)).peak_bytes
    assert peak(ask(growing(), memory=rough - 1)) == planned(growing()) > PLANNED
    assert peak(ask(growing(), memory=rough)) == rough  # its full width fits
    assert len(planner.asked) == 1
    assert peak(ask(plan_of(), [record(growing(), PLANNED + 200_000_000.0)])) == planned(plan_of())


def test_a_plan_gets_the_limit_and_stays_the_same_plan(make_setting: MakeSetting) -> None:
    setting = make_setting(Budget(memory_bytes=5), deterministic=False)
    for plan in (growing(), plan_of()):
        limited = with_memory_limit(plan, setting)
        assert limited.runtime.memory_bytes == 5
        assert limited.key() == plan.key()
        assert with_memory_limit(plan, replace(setting, limits=Budget())) == plan
    alike = replace(setting, deterministic=True)
    assert with_memory_limit(growing(), alike) == growing(), "what it takes by then is no function of the plan"
    assert with_memory_limit(plan_of(), alike).runtime.memory_bytes == 5


@pytest.mark.parametrize(
    ("plan", "memory"),
    [
        (plan_of(), None),  # nothing to keep to
        (plan_of(batch_size=8), 300_000_000),  # too small to be planned
        (plan_of(), 20_000_000),  # far over the limit, whatever a planner does
    ],
)
def test_elsewhere_the_rough_estimate_does(plan: TrialPlan, memory: int | None, ask: Ask, planner: Planner) -> None:
    assert peak(ask(plan, memory=memory)) == price(plan, nominal(plan.model)).peak_bytes
    assert planner.asked == []


def test_a_planner_that_fails_leaves_the_rough_estimate(
    ask: Ask, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "plan_step", Mock(side_effect=TunerError("too slow")))
    assert peak(ask(plan_of())) == price(plan_of(), nominal(plan_of().model)).peak_bytes


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
