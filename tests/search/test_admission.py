"""The one place that refuses: each reason by itself, and several at once."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.search.conftest import InProcess, Moods
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import SHARED_STAGES
from tuner.plan.trial import TrialPlan
from tuner.planner.price import Estimate, price
from tuner.plugin.compose import Composed, compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import ValueSource, Wanted
from tuner.plugin.sources import preferred_values, random_values
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.search.admission import REFUSALS, Admission, Decision, runnable
from tuner.search.estimate.forecast import Expected, Forecast
from tuner.search.fill.filling import Filler, UnfilledError
from tuner.search.listener import Listener
from tuner.search.processes.guard import JobResult
from tuner.search.setting import Setting, participants, wanted_knobs
from tuner.search.space import Space, load_space
from tuner.store.store import Store

Decide = Callable[..., Decision]
MODEL = example_model(6)
PLENTY = Budget(trials=1, train_seconds=1e6, memory_bytes=10**12, storage_bytes=10**12)


@pytest.fixture
def decide(
    make_setting: Callable[..., Setting], stand_in: InProcess, sessions: Any, filler: Filler, plan: TrialPlan
) -> Decide:
    """Return the decision on a plan whose features are stored, of a study with such limits."""
    filler.fill([plan])

    def deciding(limits: Budget = PLENTY, records: Sequence[TrialRecord] = (), plan: TrialPlan = plan) -> Decision:
        setting = make_setting(limits)
        return Admission(setting, stand_in.host, Forecast(setting, sessions), filler).admit(plan, records)

    return deciding


@pytest.mark.parametrize("backend", [None, "torch", "onnxruntime"])
@pytest.mark.parametrize("space", [Space("of all strategies"), load_space("every-strategy"), load_space("early-exits")])
def test_no_plan_is_drawn_that_no_backend_can_carry_out(space: Space, backend: str | None) -> None:
    host, draw, seen = build_host(), random.Random(1), set[str]()
    extensions = {name: host.extensions(name) for name in host.backends}
    wanted = wanted_knobs(space, backend, deterministic=True)
    strategies = participants(host, space)[0]
    shared = {one.name for one in strategies if one.stage in SHARED_STAGES}

    def reason(plan: TrialPlan) -> str | None:
        return extensions[plan.runtime.backend].lacking(plan) or host.supports(plan)

    for _ in range(100):
        drawn = compose(strategies, random_values(draw), example_model(6), example_task(), wanted)

        def without(*names: str, drawn: Composed = drawn) -> Composed:
            source = preferred_values(drawn.values)
            return compose(strategies, source, example_model(6), example_task(), wanted, names)

        found = runnable(drawn, without, shared, reason)
        assert reason(found.plan) is None
        assert (found.values, found.knobs) == (drawn.values, drawn.knobs)
        assert bool(found.notes) == (found.plan != drawn.plan)
        for edit in found.plan.shape:
            limits: dict[str, Any] = dict(edit.settings)
            assert limits.get("start", 0.0) <= min(limits.get("cap", 1.0), limits.get("flops", 1.0))
        seen |= {found.plan.runtime.backend, *found.changed}
    assert seen >= ({backend} if backend else {"torch"})
    assert len(seen) > 6


def test_the_values_of_a_plan_that_left_a_strategy_out_give_it_again() -> None:
    host, draw, changed = build_host(), random.Random(2), 0
    strategies, _ = participants(host, space := load_space("early-exits"))
    wanted = wanted_knobs(space, "onnxruntime", deterministic=True)
    shared = {one.name for one in strategies if one.stage in SHARED_STAGES}

    def composed(source: ValueSource) -> Composed:
        drawn = compose(strategies, source, example_model(6), example_task(), wanted)

        def without(*names: str) -> Composed:
            again = preferred_values(drawn.values)
            return compose(strategies, again, example_model(6), example_task(), wanted, names)

        return runnable(drawn, without, shared, host.supports)

    for _ in range(50):
        found = composed(random_values(draw))
        again = composed(preferred_values(found.values))
        assert (again.plan, again.searched) == (found.plan, found.searched)
        changed += any("without" in note for note in found.notes)
    assert changed > 0


def test_a_knob_that_the_space_fixes_stays_and_what_is_changed_is_noted() -> None:
    strategies = participants(build_host(), load_space("every-strategy"))[0]

    def drawn(wanted: Mapping[str, Wanted]) -> Composed:
        return compose(strategies, preferred_values({"recipe.micro_batches": 4}), MODEL, example_task(), wanted)

    def reason(plan: TrialPlan) -> str | None:
        return "set micro_batches to 1" if plan.recipe.micro_batches > 1 else None

    def carried_out(wanted: Mapping[str, Wanted]) -> Composed:
        return runnable(drawn(wanted), lambda *_: drawn(wanted), (), reason)

    free, fixed = carried_out({}), carried_out({"recipe.micro_batches": 4})
    assert free.plan.recipe.micro_batches == 1
    assert free.notes == (
        "changed from what was drawn: recipe.micro_batches 1 instead of 4; else set micro_batches to 1",
    )
    assert (fixed.plan.recipe.micro_batches, fixed.notes) == (4, ())


def test_a_plan_within_every_limit_is_admitted_with_its_estimate(
    decide: Decide, plan: TrialPlan, setting: Setting
) -> None:
    decision = decide()
    assert decision.admits
    assert decision.expected.estimate == price(plan, setting.rates).estimate(0)


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        (Budget(train_seconds=1e-3), ["train-time"]),
        (Budget(memory_bytes=1000), ["memory"]),
        (Budget(storage_bytes=1), ["storage"]),
        (Budget(train_seconds=1e-3, memory_bytes=1000), ["train-time", "memory"]),
    ],
)
def test_each_broken_limit_refuses_by_name_and_by_how_much(decide: Decide, limits: Budget, names: list[str]) -> None:
    decision = decide(limits)
    assert not decision.admits
    assert sorted(decision.constraint) == sorted(names)
    assert all(f"--{name}: needs " in decision.reason for name in names)
    assert decision.reason.count("; ") == len(names) - 1
    if limits.train_seconds:
        expected = math.log(decision.expected.estimate.train_seconds / 1e-3)
        assert decision.constraint["train-time"] == pytest.approx(expected)


def test_what_the_backend_cannot_do_is_refused_first(decide: Decide, moods: Moods) -> None:
    moods("unsupported")
    decision = decide(Budget(memory_bytes=1000))
    assert decision == Decision(decision.expected, "it sulks", {"support": 1.0})


def test_what_failed_for_the_backends_sake_is_not_tried_again(decide: Decide, plan: TrialPlan) -> None:
    deeper = replace(plan, split=plan.split - 1)
    failed = TrialRecord(0, "rejected", deeper, reason="no form", spent_seconds=1.0, constraint={"support": 1.0})
    decision = decide(records=[failed], plan=deeper)
    assert not decision.admits
    assert decision.reason == "no form"
    assert decide(records=[failed]).admits
    assert decide(records=[replace(failed, spent_seconds=0.0)], plan=deeper).admits


def test_a_filling_pass_that_memory_was_too_small_for_is_not_begun_again(
    make_setting: Callable[..., Setting], stand_in: InProcess, sessions: Any, store: Store, plan: TrialPlan
) -> None:
    setting = make_setting(PLENTY, deterministic=False)
    filler = Filler(setting, sessions, store, Listener())
    admission = Admission(setting, stand_in.host, Forecast(setting, {}), filler)
    stand_in.answer = lambda _: JobResult("memory", most_bytes=2 * 10**12)
    assert admission.admit(plan, []).admits
    with pytest.raises(UnfilledError):
        filler.fill([plan])
    decision = admission.admit(plan, [])
    assert not decision.admits
    assert decision.constraint == {"memory": pytest.approx(math.log(2))}
    assert "is too small to run the frozen prefix" in decision.reason


def test_memory_is_refused_unless_it_fits_surely_and_time_only_if_it_surely_does_not(
    decide: Decide, plan: TrialPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle = Estimate(4.0, 4.0, 440_000_000, 1)
    low, high = Estimate(3.0, 3.0, 410_000_000, 1), Estimate(6.0, 6.0, 470_000_000, 1)
    expected = Expected(middle, middle, low, high)
    monkeypatch.setattr(Forecast, "expected", lambda *_: expected)
    tight = decide(Budget(memory_bytes=450_000_000))
    assert not tight.admits
    assert tight.reason == "--memory: needs 410 to 470 MB (90 % interval), but 450 MB are allowed"
    assert tight.constraint == {"memory": pytest.approx(math.log(470 / 450))}
    assert decide(Budget(memory_bytes=470_000_000)).admits
    assert decide(Budget(train_seconds=3.5)).admits
    refused = TrialRecord(0, "rejected", plan, constraint={"memory": 0.1})
    done = replace(refused, state="done", constraint={})
    for records, limit, admitted in (
        ([refused] * REFUSALS, 441, True),
        ([refused] * REFUSALS, 439, False),
        ([refused] * (REFUSALS // 2), 456, True),
        ([refused] * (REFUSALS // 2), 453, False),
        ([*[refused] * REFUSALS, done, refused], 460, False),
    ):
        decision = decide(Budget(memory_bytes=limit * 10**6), records)
        assert decision.admits == admitted
    long = decide(Budget(train_seconds=2.5))
    assert not long.admits
    assert long.reason == "--train-time: needs 3 to 6 s (50 % interval), but 2.5 s are left"
