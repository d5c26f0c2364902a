"""A run, all its trials, one of them whole, and a bundle's card."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.printed import printed_json
from tuner.cli.app import call
from tuner.cli.text.run import ESTIMATES
from tuner.results.folder import append_record
from tuner.results.run import Run
from tuner.runtime import Bundle

OLD = Path(__file__).parents[2] / "fixtures"
TRACE = "Traceback (most recent call last):\n  File mine.py, line 3, in lower\nKeyError: 'block'\n"
RUN, BUNDLE = OLD / "digits" / "run", OLD / "digits" / "bundle"


def text(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert call([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a refused, a killed, a repeated and a failed trial at its end."""
    shutil.copytree(RUN, tmp_path / "run")
    last = Run.open(tmp_path / "run").records[-1]
    ended: list[dict[str, Any]] = [
        {"state": "rejected", "reason": "expected 2.0 GB of memory", "constraint": {"memory": 0.7}},
        {"state": "killed", "reason": "took 1.1 GB", "constraint": {"memory": 0.1, "time": -1}},
        {"same_as": 3, "values": last.values},
        {"state": "failed", "reason": "KeyError: 'block'", "constraint": {"failed": 1.0}, "notes": (TRACE,)},
    ]
    for trial, changes in enumerate(ended, start=4):
        append_record(tmp_path / "run", replace(last, **{"trial": trial, "values": {}, **changes}))
    return Run.open(tmp_path / "run")


def test_all_trials_are_shown_with_the_reason_of_a_refusal(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = text(capsys, "show", run.folder, "--trials").splitlines()
    assert lines[0].split() == ["trial", "state", "rung", "local", "accuracy", "global", "accuracy", "train", "seconds"]
    values = next(line for line in lines if line.startswith("  → 0  done"))
    assert ("99.1 %" in values, "92.1 %" in values, "0.257 s" in values) == (True, True, True)
    below = {line.split()[0]: lines[number + 1].strip() for number, line in enumerate(lines[:-1])}
    assert below["4"] == "expected 2.0 GB of memory"
    assert below["5"] == "took 1.1 GB"
    assert below["6"] == "the same plan as trial 3, whose values these are"
    assert lines[-2] == "do not count: 2 because of --memory, 1 because of failures"
    assert lines[-1] == "trials: 4 done, 1 rejected, 0 stopped, 1 killed, 1 failed"
    content = printed_json(capsys, "show", run.folder, "--trials")
    assert [trial["state"] for trial in content["trials"]][4:] == ["rejected", "killed", "done", "failed"]
    assert content["trials"][4]["constraint"] == {"memory": 0.7}


@pytest.mark.parametrize("name", ["digits", "exits", "signals"])
def test_a_bundle_shows_its_card(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = OLD / name / "bundle"
    info = Bundle.open(folder).info
    shown = text(capsys, "show", folder)
    assert f"plan: {info.sentence}" in shown.splitlines()
    accuracy = info.scores.from_pixels["local_accuracy"]
    assert f"local accuracy: {100 * accuracy:.1f} % (95 % interval " in shown
    assert f"classes: {len(info.labels)} ({', '.join(info.labels)})" in shown
    assert ("can be trained further without PyTorch: yes" in shown) == (info.train is not None)
    assert "licence: " in shown
    content = printed_json(capsys, "show", folder)
    assert content["bytes"] == {path: (folder / path).stat().st_size for path in info.files}
    assert content["trainable"] == (info.train is not None)
    low, high = content["intervals"]["local_accuracy"]
    assert low < accuracy < high
    assert content["labels"] == list(info.labels)


def test_the_card_of_digits(capsys: pytest.CaptureFixture[str]) -> None:
    lines = text(capsys, "show", BUNDLE).splitlines()
    assert "local accuracy: 98.1 % (95 % interval 93–99), untouched model 0.0 %" in lines
    assert "test accuracy: 91.6 %" in lines
    assert "size: model 107.7 kB, 26,090 parameters; whole bundle 501.5 kB" in lines


def test_a_damaged_bundle_has_no_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(BUNDLE, tmp_path / "bundle")
    (tmp_path / "bundle" / "model.onnx").write_bytes(b"0")
    assert call(["show", str(tmp_path / "bundle")]) == 1
    assert "model.onnx" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([RUN, "999"], 1, "has no trial 999: it has 0 to"),
        ([RUN, "3", "--all"], 2, ""),
        ([RUN, "--all", "--trials"], 2, ""),
        ([BUNDLE, "3"], 2, ""),
        ([BUNDLE, "--trials"], 2, ""),
        ([RUN, "three"], 2, ""),
        (["n" * 300], 1, "tuner: "),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    arguments: list[object], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["show", *map(str, arguments)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_a_failed_trial_shows_its_traceback(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    trial = run.records[-1].trial
    lines = text(capsys, "show", run.folder, trial).splitlines()
    assert lines[0].startswith(f"trial {trial}: failed")
    assert "reason: KeyError: 'block'" in lines
    assert "limit failed: over by 1" in lines
    assert "\n".join(lines[-3:]) == TRACE.rstrip()
    content = json.loads(text(capsys, "show", run.folder, trial, "--json"))
    assert content["notes"] == [TRACE]
    assert (content["trial"], content["state"], content["reason"]) == (trial, "failed", "KeyError: 'block'")


def test_a_trial_that_was_scored_shows_its_plan_values_and_estimate(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run.record(run.front[0])
    shown = text(capsys, "show", run.folder, record.trial)
    (accuracy,) = [line for line in shown.splitlines() if line.startswith("local_accuracy: ")]
    assert accuracy.startswith(f"local_accuracy: {100 * record.values['local_accuracy']:.1f} % (")
    assert "estimate: train_seconds " in shown
    assert f"knob recipe.epochs: {record.knobs['recipe.epochs']}" in shown.splitlines()
    content = json.loads(text(capsys, "show", run.folder, record.trial, "--json"))
    assert content["knobs"] == record.knobs
    assert content["measured"] == record.values


def test_a_run_shows_the_errors_of_its_estimates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [one for one in text(capsys, "show", run.folder, "--details").splitlines() if one.startswith(ESTIMATES)]
    assert re.search(r"memory by \d+ % as a rule", line)
    errors = printed_json(capsys, "show", run.folder)["estimate_errors"]
    assert errors["train_seconds"]["trials"] > 0
    assert errors["train_seconds"]["plain_median"] is not None


def test_a_top_k_accuracy_has_its_interval(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    record = run.record(run.front[0])
    append_record(run.folder, replace(record, values={**record.values, "local_top5_accuracy": 0.9}))
    assert re.search(
        r"^local_top5_accuracy: 90\.0 % \(\d+–\d+\)$", text(capsys, "show", run.folder, record.trial), re.MULTILINE
    )
