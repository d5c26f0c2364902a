"""A trial ends early when even its optimistic end is dominated."""

from dataclasses import replace

import pytest

from tests.plan.plans import PLAN
from tests.search.settings import setting
from tuner.plan.parts import RecipePlan
from tuner.planner.price import Estimate
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.estimate.outlook import LEAST_CURVES, Curve, Outlook, optimistic_end

TEN = replace(PLAN, recipe=RecipePlan(epochs=10))
COSTS = Estimate(1.0, 1.0, 1_000_000, 0)
SLOW = 5.0


def curve(start: float, end: float, epochs: int = 10) -> tuple[float, ...]:
    return tuple(start + (end - start) * epoch / (epochs - 1) for epoch in range(epochs))


def record(trial: int, losses: tuple[float, ...], local: float, global_: float = 0.5) -> TrialRecord:
    values = {"local_accuracy": local, "global_accuracy": global_, "train_seconds": 1.0, "peak_bytes": 1e6}
    epochs = tuple({"epoch": number + 1.0, "loss": loss, "seconds": 1.0} for number, loss in enumerate(losses))
    return TrialRecord(trial, "done", TEN, values=values, epochs=epochs)


def tried() -> list[TrialRecord]:
    """Four trials end with a low loss and do well, six with a high one and do badly."""
    good = [record(number, curve(2.0, 0.5), 0.9, 0.6) for number in range(4)]
    return [*good, *(record(number, curve(2.0, 1.8), 0.3, 0.4) for number in range(4, 10))]


def watched(records: list[TrialRecord], *, deterministic: bool = False) -> Outlook:
    outlook = Outlook(setting(deterministic=deterministic))
    outlook.begin(TEN, COSTS, 0, records)
    return outlook


def test_a_loss_that_none_recovered_from_ends_the_trial_and_says_so() -> None:
    outlook = watched(tried())
    assert not outlook.hopeless(4.0, SLOW)  # the steepest fall of the others, from here, ends low enough
    assert [outlook.hopeless(4.0, SLOW) for _ in range(6)][-1]
    stopped = replace(record(10, (), 0.2), state="stopped", reason="stopped on request after epoch 5")
    assert outlook.explained(stopped).reason == ("stopped on request after epoch 5: the front was out of its reach")


def test_a_curve_as_good_as_the_best_goes_on() -> None:
    outlook = watched(tried())
    assert not any(outlook.hopeless(loss, SLOW) for loss in curve(2.0, 0.5)[:-1])
    done = replace(record(10, (), 0.2), state="stopped", reason="stopped on request in epoch 5")
    assert outlook.explained(done).reason == "stopped on request in epoch 5"


@pytest.mark.parametrize("why", ["few", "short", "deterministic", "another rung", "costs"])
def test_without_grounds_every_trial_runs_to_its_end(why: str) -> None:
    records = tried()[: LEAST_CURVES - 1] if why == "few" else tried()
    outlook = watched(records, deterministic=why == "deterministic")
    if why == "another rung":
        outlook.begin(TEN, COSTS, 1, records)
    if why == "costs":  # the front has nothing as cheap
        outlook = Outlook(replace(setting(deterministic=False), objectives=OBJECTIVES))
        outlook.begin(TEN, replace(COSTS, train_seconds=0.1), 0, records)
    assert not any(outlook.hopeless(4.0, 0.01 if why == "short" else SLOW) for _ in range(9))


def test_the_optimistic_end_falls_as_far_as_the_steepest_curve_did() -> None:
    curves = [Curve((2.0, 1.0), {"local_accuracy": 0.8}), Curve((2.0, 1.8), {"local_accuracy": 0.3})]
    assert optimistic_end(2.0, 0.5, curves) == {"local_accuracy": 0.8}
    assert optimistic_end(3.0, 0.5, curves) == {"local_accuracy": 0.8}  # 1.5: between the two, so as good as the better
    assert optimistic_end(4.0, 0.5, curves) == {"local_accuracy": 0.3}
