"""The one place that refuses: each reason by itself, and several at once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tuner.plan.trial import TrialPlan
from tuner.planner.price import Estimate, price
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.search.admission import REFUSALS, Admission, Decision
from tuner.search.estimate.forecast import Expected
from tuner.search.fill.filling import UnfilledError
from tuner.search.processes.guard import JobResult
from tuner.search.study import Study

Begin = Callable[..., Study]
Moods = Callable[..., None]
PLENTY = Budget(trials=1, train_seconds=1e6, memory_bytes=10**12, storage_bytes=10**12)


@pytest.fixture
def study(begin: Begin) -> Study:
    return begin(PLENTY)


@pytest.fixture
def plan(study: Study) -> TrialPlan:
    study.run()
    plan = study.records[0].plan
    assert plan is not None
    return plan


def decide(study: Study, plan: TrialPlan, limits: Budget = PLENTY, records: Sequence[TrialRecord] = ()) -> Decision:
    """Decide with other limits than the study's own."""
    filler = study._filler
    setting = replace(study._setting, limits=limits)
    return Admission(setting, study._host, study._admission._forecast, filler).admit(plan, records)


def test_a_plan_within_every_limit_is_admitted_with_its_estimate(study: Study, plan: TrialPlan) -> None:
    decision = decide(study, plan)
    assert decision.admits
    assert decision.expected.estimate == price(plan, study._setting.rates).estimate(0)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Budget(train_seconds=1e-3), "train-time"),
        (Budget(memory_bytes=1000), "memory"),
        (Budget(storage_bytes=1), "storage"),
    ],
)
def test_each_limit_refuses_by_name_and_by_how_much(study: Study, plan: TrialPlan, limits: Budget, name: str) -> None:
    decision = decide(study, plan, limits)
    assert not decision.admits
    assert list(decision.constraint) == [name]
    assert decision.reason.startswith(f"--{name}: needs ")
    if name == "train-time":
        assert decision.constraint[name] == pytest.approx(math.log(decision.expected.estimate.train_seconds / 1e-3))


def test_every_broken_limit_is_named(study: Study, plan: TrialPlan) -> None:
    decision = decide(study, plan, Budget(train_seconds=1e-3, memory_bytes=1000))
    assert not decision.admits
    assert set(decision.constraint) == {"train-time", "memory"}
    assert decision.reason.count("; ") == 1


def test_what_the_backend_cannot_do_is_refused_first(study: Study, plan: TrialPlan, moods: Moods) -> None:
    moods("unsupported")
    decision = decide(study, plan, Budget(memory_bytes=1000))
    assert decision == Decision(decision.expected, "it sulks", {"support": 1.0})


def test_what_failed_for_the_backends_sake_is_not_tried_again(study: Study, plan: TrialPlan) -> None:
    failed = TrialRecord(0, "rejected", plan, reason="no form", spent_seconds=1.0, constraint={"support": 1.0})
    decision = study._admission.admit(plan, [failed])
    assert not decision.admits
    assert decision.reason == "no form"
    assert study._admission.admit(replace(plan, split=plan.split + 1), [failed]).admits
    assert study._admission.admit(plan, [replace(failed, spent_seconds=0.0)]).admits


def test_a_filling_pass_that_memory_was_too_small_for_is_not_begun_again(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = begin(Budget(trials=1, memory_bytes=10**12), deterministic=False)
    study.run()
    plan = study.records[0].plan
    assert plan is not None
    study._filler._filled.clear()
    sessions: Any = study._filler._sessions["misbehaving"]
    monkeypatch.setattr(sessions._supervisor, "run", lambda *_: JobResult("memory", most_bytes=2 * 10**12))
    assert study._admission.admit(plan, []).admits
    with pytest.raises(UnfilledError):
        study._filler.fill([plan])
    decision = study._admission.admit(plan, [])
    assert not decision.admits
    assert decision.constraint == {"memory": pytest.approx(math.log(2))}
    assert "is too small to run the frozen prefix" in decision.reason


def test_memory_is_refused_unless_it_fits_surely_and_time_only_if_it_surely_does_not(
    study: Study, plan: TrialPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle = Estimate(4.0, 4.0, 440_000_000, 1)
    low, high = Estimate(3.0, 3.0, 410_000_000, 1), Estimate(6.0, 6.0, 470_000_000, 1)
    expected = Expected(middle, middle, low, high)
    monkeypatch.setattr(study._admission._forecast, "expected", lambda *_: expected)
    tight = decide(study, plan, Budget(memory_bytes=450_000_000))
    assert not tight.admits
    assert tight.reason == "--memory: needs 410 to 470 MB (90 %), but 450 MB are left"
    assert tight.constraint == {"memory": pytest.approx(math.log(470 / 450))}
    assert decide(study, plan, Budget(memory_bytes=470_000_000)).admits
    assert decide(study, plan, Budget(train_seconds=3.5)).admits
    refused = TrialRecord(0, "rejected", plan, constraint={"memory": 0.1})
    done = replace(refused, state="done", constraint={})
    for records, limit, admitted in (
        ([refused] * REFUSALS, 441, True),
        ([refused] * REFUSALS, 439, False),
        ([refused] * (REFUSALS // 2), 456, True),
        ([refused] * (REFUSALS // 2), 453, False),
        ([*[refused] * REFUSALS, done, refused], 460, False),
    ):
        decision = decide(study, plan, Budget(memory_bytes=limit * 10**6), records)
        assert decision.admits == admitted
    long = decide(study, plan, Budget(train_seconds=2.5))
    assert not long.admits
    assert long.reason == "--train-time: needs 3 to 6 s (50 %), but 2.5 s are left"
