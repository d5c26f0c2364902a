"""Of a few suggestions, the one expected to bring most by the end."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import optuna
import pytest

from tests.plan.plans import PLAN
from tests.search.conftest import Begin
from tests.search.settings import ACCURACIES, setting
from tuner.plan.parts import Scalar
from tuner.plugin.compose import Composed
from tuner.plugin.knobs import Choice, Knob, Numeric, ValueSource
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.search.propose.candidates import Candidates
from tuner.search.propose.structures import Structures
from tuner.search.setting import Setting
from tuner.search.trials.queue import Queue

KNOBS: dict[str, Knob] = {
    "recipe.learning_rate": Numeric("recipe.learning_rate", 1e-4, 1e-2, whole=False, log=True),
    "cache.bits": Choice("cache.bits", (16, 8)),
}


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


@pytest.fixture
def choosing() -> Callable[..., Candidates]:
    """Make candidates over two knobs, for a study in memory."""

    def make(sampler: str = "tpe") -> Candidates:
        def compose(source: ValueSource) -> Composed:
            return Composed(PLAN, {name: source(knob) for name, knob in KNOBS.items()}, KNOBS)

        directions = [one.optuna_direction for one in ACCURACIES]
        queue = Queue(optuna.create_study(directions=directions), setting(), ())
        structures = Structures(setting(), compose, lambda _composed, _rung: 1.0, lambda _rung: 0.0)
        return Candidates(queue, replace(setting(), sampler=sampler), compose, structures)

    return make


def always(_plan: Composed) -> bool:
    return True


def second(_plan: Composed) -> float:
    return 1.0


def test_of_equal_cost_a_plan_near_good_ones_is_chosen(
    choosing: Callable[..., Candidates], tried: list[TrialRecord]
) -> None:
    chosen = choosing().best(second, always, tried, 0)
    assert chosen is not None
    assert float(chosen.values["recipe.learning_rate"]) > 3e-3


def test_of_equal_promise_the_cheaper_is_chosen(choosing: Callable[..., Candidates], tried: list[TrialRecord]) -> None:
    def narrow_is_cheap(plan: Composed) -> float:
        return 0.1 if plan.values["cache.bits"] == 8 else 50.0

    chosen = choosing().best(narrow_is_cheap, always, tried, 0)
    assert chosen is not None
    assert chosen.values["cache.bits"] == 8


def test_a_plan_that_was_tried_or_is_over_a_limit_is_not_chosen(
    choosing: Callable[..., Candidates], tried: list[TrialRecord]
) -> None:
    def low_is_old(plan: Composed) -> float:
        return math.inf if plan.values["cache.bits"] == 8 else 1.0

    asked: list[Composed] = []

    def admits(plan: Composed) -> bool:
        asked.append(plan)
        return len(asked) == 3

    chosen = choosing().best(low_is_old, admits, tried, 0)
    assert chosen is asked[-1]
    assert len(asked) == 3
    assert chosen.values["cache.bits"] == 16


def test_something_is_returned_where_all_was_tried_and_where_values_are_out_of_range(
    choosing: Callable[..., Candidates], tried: list[TrialRecord]
) -> None:
    assert choosing().best(lambda _plan: math.inf, always, tried, 0) is not None
    odd = [replace(one, knobs={**one.knobs, "cache.bits": "none", "recipe.learning_rate": 1.0}) for one in tried]
    assert choosing().best(second, always, odd, 0) is not None


def test_before_two_trials_tell_a_short_new_plan_is_taken(choosing: Callable[..., Candidates]) -> None:
    def short(plan: Composed) -> float:
        return 1.0 if float(plan.values["recipe.learning_rate"]) < 1e-3 else 1e9

    chosen = choosing().best(short, always, [], 0)
    assert chosen is not None
    assert float(chosen.values["recipe.learning_rate"]) < 1e-3


def test_samplers_that_are_not_weighed_are_taken_at_their_word(
    choosing: Callable[..., Candidates], tried: list[TrialRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Candidates, "_gains", lambda *_: pytest.fail("only TPE's are weighed"))
    assert choosing("nsga2").best(second, always, tried, 0) is None
    assert choosing("random").best(second, always, tried, 0) is not None


@pytest.mark.parametrize("rung", [-1, 0, 2])
def test_the_first_choice_may_be_on_any_rung(
    choosing: Callable[..., Candidates], tried: list[TrialRecord], rung: int
) -> None:
    here = [replace(one, rung=rung) for one in tried]
    assert choosing().best(second, always, here, rung) is not None


def test_a_choice_on_another_rung_is_that_of_a_study_that_was_resumed_there(
    choosing: Callable[..., Candidates], tried: list[TrialRecord]
) -> None:
    low = [
        replace(one, rung=1, values={**one.values, "local_accuracy": 0.9 - one.values["local_accuracy"]})
        for one in tried
    ]
    climbed, resumed = choosing(), choosing()
    climbed.best(second, always, low, 1)
    before, after = (one.best(second, always, [*low, *tried], 0) for one in (climbed, resumed))
    assert before is not None
    assert after is not None
    assert before.values == after.values


def test_objectives_that_are_not_foreseen_leave_the_choice_to_the_sampler(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Candidates, "_gains", lambda *_: pytest.fail("its gain is not foreseen"))
    monkeypatch.setattr(Setting, "foreseen", property(lambda _self: False))
    study = begin(Budget(trials=6))
    study.run()
    assert len(study.records) >= 6


def test_no_plan_is_tried_twice_while_there_are_others(begin: Begin) -> None:
    study = begin(Budget(trials=20))
    study.run()
    assert not [record for record in study.records if record.same_as is not None]


def test_what_plans_may_bring_in_the_time_that_is_left_grows_with_the_number_that_fit(
    choosing: Callable[..., Candidates], tried: list[TrialRecord]
) -> None:
    candidates = choosing()
    assert candidates.gain_within(10.0) == math.inf, "before the first one nothing is known"
    candidates.best(lambda _plan: 0.7, always, tried, 0)
    assert candidates.gain > 0
    assert candidates.gain_within(100.0) == pytest.approx(100 * candidates.gain, rel=0.1), "0.3 s more to start each"
    assert candidates.gain_within(0.5) == candidates.gain_within(math.inf) == candidates.gain
