"""Measures of plugins: a value each, and one that fails costs no other."""

from collections.abc import Callable

import pytest

from tests.plan.plans import PLAN
from tuner.backends.measuring import Measure, MeasuredTrial, Measuring
from tuner.results.records.trial import Outcome

OUTCOME = Outcome({"local_accuracy": 0.5}, ({"epoch": 1.0},), notes=("a note",))
TRIAL = MeasuredTrial(PLAN, "the tail", OUTCOME)


def constant(value: float) -> Measure:
    return lambda: lambda _: value


def test_a_value_goes_into_the_outcome_by_its_name() -> None:
    seen: list[object] = []

    def begin() -> Callable[[MeasuredTrial], float]:
        seen.append("begun")

        def end(trial: MeasuredTrial) -> float:
            seen.append((trial.plan, trial.tail, trial.outcome.values["local_accuracy"]))
            return 3.0

        return end

    measuring = Measuring({"mine": begin}, ["local_accuracy", "mine"])
    assert seen == ["begun"]
    ended = measuring.end(TRIAL)
    assert ended.values == {"local_accuracy": 0.5, "mine": 3.0}
    assert (ended.epochs, ended.notes) == (OUTCOME.epochs, OUTCOME.notes)
    assert seen[1:] == [(PLAN, "the tail", 0.5)]


def test_what_no_objective_asks_for_is_not_measured() -> None:
    def begin() -> Callable[[MeasuredTrial], float]:
        raise AssertionError("it was begun")

    assert Measuring({"mine": begin}, ["local_accuracy"]).end(TRIAL) == OUTCOME


def raising_at_first() -> Callable[[MeasuredTrial], float]:
    raise ZeroDivisionError("no sensor")


def raising_at_last() -> Callable[[MeasuredTrial], float]:
    return lambda trial: 1 / len(trial.plan.shape)


@pytest.mark.parametrize(
    ("measure", "note"),
    [
        (raising_at_first, "measure 'bad': ZeroDivisionError: no sensor"),
        (raising_at_last, "measure 'bad': ZeroDivisionError: division by zero"),
        (constant(float("nan")), "measure 'bad': a value must be finite, but it is nan"),
        (constant(float("inf")), "measure 'bad': a value must be finite, but it is inf"),
        (lambda: lambda _: None, "measure 'bad': TypeError"),
        (lambda: None, "measure 'bad': TypeError"),
    ],
)
def test_one_that_fails_costs_its_own_value_only(measure: Measure, note: str) -> None:
    ended = Measuring({"bad": measure, "good": constant(1.0)}, ["bad", "good"]).end(TRIAL)
    assert ended.values == {"local_accuracy": 0.5, "good": 1.0}
    assert ended.notes[0] == "a note"
    assert ended.notes[1].startswith(note)


def test_what_the_backend_measured_stays() -> None:
    assert Measuring({"local_accuracy": constant(1.0)}, ["local_accuracy"]).end(TRIAL).values == OUTCOME.values
