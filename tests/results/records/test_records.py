"""Records of trials, as JSON and as candidates of the front, and predictions counted by class."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, TailEdit
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.planner.price import Estimate
from tuner.results.records.counts import MOST_CONFUSED, ClassCounts
from tuner.results.records.trial import STATES, TrialRecord, TrialState, eligible

TEMPLATE = TrialPlan(example_model(4), example_task())
PLAN = replace(
    TEMPLATE,
    data=DataPlan(0.05),
    split=3,
    shape=(TailEdit("dropout", (("rate", 0.5),)),),
    heads=HeadsPlan("with-tail", (Exit(2, 8),)),
    cache=CachePlan("cache", 4),
)
RECORD = TrialRecord(
    trial=7,
    state="stopped",
    plan=PLAN,
    knobs={"cache.bits": 4, "recipe.freeze_bn": True, "gdm.alpha": 0.05, "cache.by": "cache"},
    values={"local_accuracy": 0.9, "train_seconds": 1.5},
    estimate=Estimate(1.0, 2.0, 3, 4),
    reason="no better for 3 epochs",
    spent_seconds=2.5,
    epochs=({"epoch": 1.0, "loss": 0.5},),
    notes=("run by the eager loop",),
    constraint={"memory": -0.5},
    same_as=3,
)


@pytest.mark.parametrize(
    "record", [RECORD, TrialRecord(0, "failed", None, reason="ValueError: no"), TrialRecord(1, "done", PLAN)]
)
def test_a_record_reads_back_equal_from_json(record: TrialRecord) -> None:
    back = TrialRecord.from_dict(json.loads(json.dumps(record.to_dict())), TEMPLATE)
    assert back == record
    assert {type(value) for value in back.knobs.values()} == {type(value) for value in record.knobs.values()}


def test_a_record_holds_the_decisions_and_not_the_model_again() -> None:
    content = RECORD.to_dict()
    assert content["plan"].keys() == {"data", "split", "shape", "heads", "cache", "recipe", "runtime"}
    assert (content["key"], content["sentence"]) == (PLAN.key(), describe(PLAN))
    assert "block0" not in json.dumps(content)


@pytest.mark.parametrize(
    ("state", "constraint", "same_as", "stands"),
    [
        ("done", {}, None, True),
        ("stopped", {"time": -0.1, "memory": 0.0}, None, True),
        ("done", {"memory": 0.1}, None, False),
        ("done", {}, 3, False),
        ("rejected", {}, None, False),
        ("killed", {}, None, False),
        ("failed", {}, None, False),
    ],
)
def test_only_new_measured_trials_within_every_limit_may_be_on_the_front(
    state: TrialState, constraint: dict[str, float], same_as: int | None, *, stands: bool
) -> None:
    assert state in STATES
    assert eligible(TrialRecord(0, state, PLAN, constraint=constraint, same_as=same_as)) is stands


def test_what_is_right_and_what_is_taken_for_what_is_counted() -> None:
    labels = np.array([7, 7, 7, 7, 9, 9])
    counts = ClassCounts.of(np.array([7, 1, 1, 2, 9, 7]), labels)
    assert counts.rows == ((7, 1, 4), (9, 1, 2))
    assert counts.confused == ((7, 1, 2), (7, 2, 1), (9, 7, 1))
    assert ClassCounts.of(np.array([3, 3]), np.array([3, 3])) == ClassCounts(((3, 2, 2),), ())


def test_of_many_classes_the_most_frequent_confusions_are_kept() -> None:
    labels = np.arange(210).repeat(3)
    predicted = (labels + 1) % 210
    predicted[:3] = 9
    counts = ClassCounts.of(np.append(predicted, 9), np.append(labels, 0))
    assert len(counts.confused) == MOST_CONFUSED
    assert counts.confused[0] == (0, 9, 4)
    assert len(counts.rows) == 210
