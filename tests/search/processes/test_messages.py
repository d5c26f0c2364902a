"""Messages of jobs: what each method returns comes back as it was; what a plugin returns by mistake is one line."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plan.plans import PLAN
from tuner.backends.base import Exported, Filling
from tuner.planner.device import nominal
from tuner.planner.memory.placement import Tensor
from tuner.planner.memory.step import StepPlan
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import Outcome
from tuner.search.processes.channel import LENGTH
from tuner.search.processes.messages import MOST_BYTES, Failure, MessageError, encode, encode_progress, result_from

COUNTS = {"local": ClassCounts(((7, 34, 36), (9, 35, 35)), ((7, 1, 2),))}
OUTCOME = Outcome({"peak_bytes": 1.0, "nan": math.inf}, ({"epoch": 1.0, "loss": 0.5},), "", ("a note: ü",), COUNTS)


def sent(value: Any) -> Any:
    return json.loads(encode("result", value)[LENGTH.size :])[1]


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("model", PLAN.model),
        ("measure", nominal(PLAN.model)),
        ("first_steps", nominal(PLAN.model).first),
        ("plan_step", StepPlan((Tensor("x", 4, 0, 1, "input"),), ("forward", "backward"), 10**12)),
        ("plan_step", None),
        ("missing", 3),
        ("ask", [[0.25, 0.75], [1.0, 0.0]]),
        ("untouched", OUTCOME),
        ("fill", Filling(1, 0.5, {3: 0.1}, 7, {(3, 8): (Path("/a/ü"), Path("/b/\udcff"))}, stopped=True)),
        ("train", OUTCOME),
        ("ask", [{"truth": 7, "jpeg": "/9j/"}]),
        ("export", Exported({"parity": 1e-6}, {"train": {"shapes": [1, 2], "name": None}})),
    ],
)
def test_what_a_method_returns_comes_back(method: str, value: Any) -> None:
    assert result_from(method, sent(value)) == value


def test_numbers_of_numpy_and_lone_surrogates_cross() -> None:
    values: dict[str, Any] = {"a": np.float32(0.5), "b": np.float64(2.0), "c": np.int64(3)}
    given = Outcome(values, notes=("\udcff",))
    assert result_from("train", sent(given)) == Outcome({"a": 0.5, "b": 2.0, "c": 3.0}, notes=("?",))
    assert json.loads(encode_progress({"loss": np.float32(math.nan)})[LENGTH.size :])[0] == "progress"


@pytest.mark.parametrize(
    ("method", "value", "line"),
    [
        (
            "train",
            {"values": {"a": "high"}},
            "what train returned: values: a: could not convert string to float: 'high'",
        ),
        ("train", {"values": {"a": None}}, "must be a string or a real number, not 'NoneType'"),
        ("train", {"values": {}, "epochs": [{"epoch": 1}]}, "every epoch must have a loss, but one has none"),
        ("train", None, "what train returned: "),
        ("missing", math.nan, "cannot convert float NaN to integer"),
        ("model", {"name": "m", "fingerprint": "f", "outputs": 3, "blocks": []}, "at least one block, got none"),
        ("model", {"name": "m"}, "missing 3 required positional arguments"),
        ("measure", {"speed": 3}, "'speed'"),
    ],
)
def test_what_a_method_returns_by_mistake_is_one_line(method: str, value: Any, line: str) -> None:
    with pytest.raises(MessageError, match=r"^[^\n]*$") as caught:
        result_from(method, value)
    assert line in str(caught.value)


def test_the_longest_texts_fit_into_a_message() -> None:
    failure = Failure.of("\U0001f600" * 10**6, "\U0001f600" * 10**6)
    content = encode("failure", failure)
    assert Failure(**json.loads(content[LENGTH.size :])[1]) == failure
    assert len(content) < MOST_BYTES
