"""Which knobs mattered."""

import random
from dataclasses import replace
from pathlib import Path

from tuner.plan.parts import Scalar
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES
from tuner_report.importance import is_told_apart, knob_importance, trials_of_largest_rung
from tuner_report.sections import LEAST_TRIALS

LOCAL = OBJECTIVES[0]


def record(trial: int, rung: int = 0, state: str = "done") -> TrialRecord:
    """Return a trial whose accuracy depends on the learning rate, and a little on the optimiser."""
    draw = random.Random(trial)
    rate, optimiser, seed = 10 ** draw.uniform(-4, -1), draw.choice(["sgd", "adam"]), draw.random()
    knobs: dict[str, Scalar] = {"rate": rate, "optimiser": optimiser, "unused": seed, "fixed": 3, "flag": seed > 0.5}
    if optimiser == "adam":
        knobs["adam.beta"] = draw.random()
    accuracy = 0.9 - abs(rate - 1e-2) * 4 + (0.01 if optimiser == "adam" else 0.0)
    return TrialRecord(trial, state, None, knobs, {"local_accuracy": accuracy}, rung=rung)  # type: ignore[arg-type]


def test_the_knob_that_decides_is_the_most_important_one() -> None:
    shares = knob_importance([record(trial) for trial in range(60)], LOCAL)
    assert next(iter(shares)) == "rate"
    assert shares["rate"] > 0.5
    assert not {"unused", "fixed", "flag"} & set(shares)


def test_importances_within_noise_are_left_out() -> None:
    draw = random.Random(1)
    noise = [replace(record(trial), values={"local_accuracy": draw.gauss(0.9, 0.01)}) for trial in range(60)]
    assert knob_importance(noise, LOCAL) == {}
    perfect = [replace(one, values={"local_accuracy": 1.0 if one.trial > 3 else 0.9}) for one in noise]
    assert not is_told_apart(perfect, LOCAL)
    plan = Run.open(Path(__file__).parents[2] / "fixtures" / "digits" / "run").record(0).plan
    close = [replace(one, plan=plan, values={"local_accuracy": 0.95 + 0.01 * (one.trial % 4 == 0)}) for one in noise]
    assert not is_told_apart(close, LOCAL)  # of 107 samples, one more is chance
    apart = [replace(one, values={"local_accuracy": 0.5 + 0.4 * (one.trial % 4 == 0)}) for one in close]
    assert is_told_apart(apart, LOCAL)


def test_few_trials_and_knobs_that_never_change_tell_nothing() -> None:
    assert knob_importance([record(trial) for trial in range(LEAST_TRIALS - 1)], LOCAL) == {}
    assert knob_importance([], LOCAL) == {}
    alike = [TrialRecord(trial, "done", None, {"a": 1}, {"local_accuracy": 0.5}) for trial in range(30)]
    assert knob_importance(alike, LOCAL) == {}


def test_only_trials_on_the_same_samples_are_compared() -> None:
    records = [record(0, rung=0), record(1, rung=2), record(2, rung=2), record(3, rung=2, state="killed")]
    assert [one.trial for one in trials_of_largest_rung(records)] == [1, 2]
    assert trials_of_largest_rung([]) == []
