"""Messages of jobs: what each method returns comes back as it was, and nothing else is believed."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plan.plans import PLAN
from tuner.backends.base import Exported, Filling, Misread
from tuner.planner.device import nominal
from tuner.planner.memory.lifetimes import Tensor
from tuner.planner.memory.step import StepPlan
from tuner.results.counts import ClassCounts
from tuner.results.records import Outcome
from tuner.search.processes import frames, wire
from tuner.search.processes.frames import FrameError, frame

COUNTS = {"local": ClassCounts(((7, 34, 36), (9, 35, 35)), ((7, 1, 2),))}
OUTCOME = Outcome({"peak_bytes": 1.0, "nan": math.inf}, ({"epoch": 1.0, "loss": 0.5},), "", ("a note: ü",), COUNTS)
CONFUSED = Outcome({}, classes={"local": ClassCounts((), ((0, 1, 1),) * 101)})


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("model", PLAN.model),
        ("measure", nominal(PLAN.model)),
        ("plan_step", StepPlan((Tensor("x", 4, 0, 1, "input"),), ("forward", "backward"), 10**12)),
        ("plan_step", None),
        ("missing", 3),
        ("untouched", OUTCOME),
        ("fill", Filling(1, 0.5, {3: 0.1}, 7, {(3, 8): (Path("/a/ü"), Path("/b/\udcff"))}, stopped=True)),
        ("train", OUTCOME),
        ("misread", (Misread(7, 1, 0.75, "/9j/"),)),
        ("export", Exported({"parity": 1e-6}, {"train": {"shapes": [1, 2], "name": None}})),
    ],
)
def test_what_a_method_returns_comes_back(method: str, value: Any) -> None:
    assert wire.result_from(method, wire.encode(value)) == value


def test_numbers_of_numpy_and_lone_surrogates_cross() -> None:
    values: dict[str, Any] = {"a": np.float32(0.5), "b": np.float64(2.0), "c": np.int64(3)}
    given = Outcome(values, notes=("\udcff",))
    assert wire.result_from("train", wire.encode(given)) == Outcome({"a": 0.5, "b": 2.0, "c": 3.0}, notes=("?",))


@pytest.mark.parametrize(
    ("method", "content", "line"),
    [
        ("train", '{"values": {"a": "high"}}', "values.a: input should be a valid number, got 'high'"),
        ("train", '{"values": {"a": null}}', "values.a: input should be a valid number, got None"),
        ("train", '{"values": {}, "epochs": [{"epoch": 1}]}', "every epoch has a loss, one has none"),
        ("train", "null", "input should be an object, got None"),
        ("misread", wire.encode([Misread(7, 1, 0.75, "")] * 9).decode(), "at most 8 misread samples are shown, got 9"),
        ("untouched", '{"values": {"a": true}}', "a: input should be a valid number, got True"),
        (
            "train",
            '{"values": {}, "classes": {"local": {"rows": [[0, 3, 2]]}}}',
            "at most all of its samples are right",
        ),
        ("train", '{"values": {}, "classes": {"local": {"rows": [[-1, 1, 2]]}}}', "at most all of its samples"),
        ("train", wire.encode(CONFUSED).decode(), "at most 100 confusions are counted"),
        ("missing", "1" + "0" * 400, "numbers are at most 1e+18, got 1000"),
        ("missing", "3.5", "got 3.5"),
        ("model", '{"name": "m", "fingerprint": "f", "outputs": 3, "blocks": []}', "at least one block, got none"),
        ("measure", wire.encode(nominal(PLAN.model)).decode().replace("0.001", "NaN"), "at most 1e+18, got nan"),
        ("model", "[" * 100_000, "recursion limit exceeded"),
        ("model", "\x80\x04N.", "invalid JSON"),
    ],
)
def test_what_a_method_does_not_return_is_refused_in_one_line(method: str, content: str, line: str) -> None:
    with pytest.raises(FrameError, match=f"^what {method} returned: [^\n]*$") as caught:
        wire.result_from(method, content.encode("latin-1"))
    assert line in str(caught.value)


@pytest.mark.parametrize("content", [b"null", b"[]", b'{"a": [1]}', b'{"step": 1}', b'{"filled": 1e400, "of": 2}'])
def test_what_is_no_progress_is_refused(content: bytes) -> None:
    with pytest.raises(FrameError, match="a progress message must give"):
        wire.progress_from(content)


def test_the_longest_texts_fit_into_a_frame() -> None:
    failure = wire.failure("\U0001f600" * 10**6, "\U0001f600" * 10**6, edit="\U0001f600" * 10**6)
    content = wire.encode_failure(failure)
    assert wire.failure_from(content) == failure
    assert len(frame(frames.FAILURE, content)) < frames.MOST_BYTES[frames.FAILURE]
