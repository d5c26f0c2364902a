"""Measures of plugins: a value each, and one that fails costs no other."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tuner_scores
from tests.plan.plans import PLAN
from tuner.arrays import Labels
from tuner.backends.measuring import Answers, Measure, MeasuredTrial, Measuring, measure_of
from tuner.errors import PluginError
from tuner.results.records.trial import Outcome
from tuner.results.scores.objectives import objective, objective_from
from tuner.targets import MultiLabel, Regression, SingleLabel
from tuner.targets.base import TargetScale

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


RIGHT = np.arange(40) % 10 != 0
LABELS = np.arange(40) % 2
ANSWERS = Answers(np.eye(2, dtype=np.float32)[np.where(RIGHT, LABELS, 1 - LABELS)], LABELS, SingleLabel(), ("a", "b"))
SCORED = replace(TRIAL, answers={"local": ANSWERS})


def share(predictions: Labels, labels: Labels) -> float:
    return float((predictions == labels).mean())


def misses(y_true: Labels, y_pred: Labels, normalize: bool = True) -> float:
    return float((y_true != y_pred).mean() if normalize else (y_true != y_pred).sum())


def rest(labels: Labels, predictions: Labels, *names: str, **options: float) -> float:
    return float((predictions == labels).mean()) if not names and not options else 0.0


def of_scikit(y_true: Labels, y_pred: Labels, *, labels: Labels | None = None) -> float:
    return float((y_true == y_pred).mean()) if labels is None else 0.0


@pytest.mark.parametrize(("function", "value"), [(share, 0.9), (misses, 0.1), (rest, 0.9), (of_scikit, 0.9)])
def test_a_function_is_called_by_the_names_of_its_arguments(function: Callable[..., float], value: float) -> None:
    measure = measure_of(objective_from(function), function)
    values = Measuring({function.__name__: measure}, [function.__name__]).end(SCORED).values
    assert values[function.__name__] == pytest.approx(value)
    assert values[f"{function.__name__}_se"] == pytest.approx(np.sqrt(0.9 * 0.1 / 39), rel=0.2)  # as of a share


def test_an_argument_that_there_is_not_is_named() -> None:
    def wrong(outputs: Labels, labels: Labels) -> float:
        return float((outputs == labels).mean())

    with pytest.raises(
        PluginError, match=r"^objective 'wrong' asks for argument 'outputs'.*takes predictions, labels, "
    ):
        measure_of(objective_from(wrong), wrong)


def test_a_direction_that_is_none_is_one_line() -> None:
    with pytest.raises(PluginError, match=r"^the direction of an objective must be maximise or minimise, got \['a'\]$"):
        objective(["a"])  # type: ignore[arg-type]


def test_shipped_scores_are_those_of_one_label_and_of_several() -> None:
    measures = {one.__name__: measure_of(objective_from(one), one) for one in tuner_scores.tuner_objectives()}
    values = Measuring(measures, measures).end(SCORED).values
    assert (values["balanced_accuracy"], values["worst_class"]) == pytest.approx((0.9, 0.8))
    assert values["macro_f1"] == pytest.approx((2 * 20 / 44 + 2 * 16 / 36) / 2)
    assert values["calibration_error"] == pytest.approx(0.9 - 1 / (1 + np.exp(-1)))
    hot = np.eye(2, dtype=np.float32)[LABELS]
    several = replace(ANSWERS, labels=hot, logits=ANSWERS.logits - 0.5, targets=MultiLabel())
    of_several = Measuring(measures, measures).end(replace(TRIAL, answers={"local": several})).values
    assert [of_several[one] for one in ("macro_f1", "worst_class")] == [values["macro_f1"], values["worst_class"]]


def test_numbers_are_in_their_own_unit() -> None:
    scale = TargetScale((10.0,), (2.0,))
    answers = Answers(np.ones((30, 1), np.float32), np.zeros((30, 1), np.float32), Regression(scale=scale), ("grams",))

    @objective("minimize", unit="g")
    def error(predictions: Labels, labels: Labels) -> float:
        return float(np.abs(predictions - labels).max() + labels.min())

    own = objective_from(error)
    assert (own.name, own.direction, own.text(12.0)) == ("error", "minimise", "12 g")
    trial = replace(TRIAL, answers={"local": answers})
    assert Measuring({"error": measure_of(own, error)}, ["error"]).end(trial).values["error"] == pytest.approx(12.0)
