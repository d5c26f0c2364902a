"""Of a few suggestions, the one expected to bring most per second."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.plan.plans import PLAN
from tuner.plan.parts import Scalar
from tuner.plugin.compose import Composed
from tuner.plugin.knobs import Choice, Knob, Numeric
from tuner.results.config import Budget
from tuner.results.records import TrialRecord
from tuner.search import candidates
from tuner.search.candidates import UNKNOWN_GAIN, Candidates, gain
from tuner.search.journal import STARTUP_TRIALS
from tuner.search.study import Study

KNOBS: dict[str, Knob] = {
    "recipe.learning_rate": Numeric("recipe.learning_rate", 1e-4, 1e-2, whole=False, log=True),
    "cache.bits": Choice("cache.bits", (16, 8)),
}
Begin = Callable[..., Study]


def plan_of(rate: float, bits: int) -> Composed:
    return Composed(PLAN, {"recipe.learning_rate": rate, "cache.bits": bits}, KNOBS)


def record(trial: int, knobs: Mapping[str, Scalar], local: float) -> TrialRecord:
    values = {"local_accuracy": local, "global_accuracy": 0.5}
    return TrialRecord(trial=trial, state="done", plan=PLAN, knobs=dict(knobs), values=values)


@pytest.fixture
def tried() -> list[TrialRecord]:
    """High rates do well, low ones do not, whatever the width."""
    generator = random.Random(0)
    found = []
    for trial in range(20):
        composed = plan_of(10 ** generator.uniform(-4, -2), generator.choice((16, 8)))
        local = 0.8 if float(composed.values["recipe.learning_rate"]) > 3e-3 else 0.1
        found.append(record(trial, composed.values, local + trial / 1000))
    return found


def test_a_plan_near_good_ones_is_expected_to_gain_more(tried: list[TrialRecord]) -> None:
    assert gain(plan_of(8e-3, 8), tried) > gain(plan_of(2e-4, 8), tried)


def test_far_from_all_that_was_tried_nothing_is_concluded(
    tried: list[TrialRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "WIDTH", 1e-3)
    assert gain(plan_of(1e-2, 8), tried) == UNKNOWN_GAIN


def test_before_enough_trials_tell_a_new_suggestion_is_taken_as_it_comes(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "gain", lambda *_: pytest.fail("three trials tell nothing"))
    study = begin(Budget(trials=STARTUP_TRIALS))
    study.run()
    assert len({one.plan.key() for one in study.records if one.plan}) == len(study.records)


def test_of_equal_promise_the_cheaper_is_tried(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[float]] = []

    def cheapest(candidate: Composed, records: Any) -> float:
        return 1.0

    monkeypatch.setattr(candidates, "gain", cheapest)
    monkeypatch.setattr(candidates, "CANDIDATES", 4)
    monkeypatch.setattr(candidates, "STARTUP_TRIALS", 0)
    original = Candidates.best

    def spying(self: Candidates, compose: Any, seconds: Any, records: Any) -> Composed | None:
        costs: list[float] = []

        def counted(composed: Composed) -> float:
            costs.append(seconds(composed))
            return costs[-1]

        chosen = original(self, compose, counted, records)
        assert chosen is not None
        assert seconds(chosen) == min(costs)
        seen.append(costs)
        return chosen

    monkeypatch.setattr(Candidates, "best", spying)
    begin(Budget(trials=8)).run()
    assert len(seen) >= 4
    assert all(len(costs) == 4 for costs in seen)
    assert any(len(set(costs)) > 1 for costs in seen)


def test_a_value_out_of_range_is_no_error(tried: list[TrialRecord]) -> None:
    odd = [replace(one, knobs={**one.knobs, "cache.bits": "none", "recipe.learning_rate": 1.0}) for one in tried]
    assert gain(plan_of(8e-3, 8), odd) > 0
