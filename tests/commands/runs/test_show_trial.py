"""One trial of a run, shown whole."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.cli.app import call
from tuner.results.folder import append_record
from tuner.results.run import Run

OLD = Path(__file__).parents[2] / "fixtures" / "digits" / "run"
TRACE = "Traceback (most recent call last):\n  File mine.py, line 3, in lower\nKeyError: 'block'\n"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a failed trial at its end."""
    shutil.copytree(OLD, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    (tmp_path / "run" / "trials.jsonl").write_text("")
    last = run.records[-1]
    failed = replace(last, trial=last.trial + 1, state="failed", values={}, reason="KeyError: 'block'", notes=(TRACE,))
    for record in (*run.records, replace(failed, constraint={"failed": 1.0})):
        append_record(tmp_path / "run", record)
    return Run.open(tmp_path / "run")


def shown(run: Run, trial: int, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    capsys.readouterr()
    assert call(["show", str(run.folder), str(trial), *more]) == 0
    return capsys.readouterr().out


def test_a_failed_trial_shows_its_traceback(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    trial = run.records[-1].trial
    lines = shown(run, trial, capsys).splitlines()
    assert lines[0].startswith(f"trial {trial}: failed")
    assert "reason: KeyError: 'block'" in lines
    assert "limit failed: over by 1" in lines
    assert "\n".join(lines[-3:]) == TRACE.rstrip()
    content = json.loads(shown(run, trial, capsys, "--json"))
    assert content["notes"] == [TRACE]
    assert (content["trial"], content["state"], content["reason"]) == (trial, "failed", "KeyError: 'block'")


def test_a_trial_that_was_scored_shows_its_plan_values_and_estimate(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run.record(run.front[0])
    text = shown(run, record.trial, capsys)
    (accuracy,) = [line for line in text.splitlines() if line.startswith("local_accuracy: ")]
    assert accuracy.startswith(f"local_accuracy: {100 * record.values['local_accuracy']:.1f} % (")
    assert "estimate: train_seconds " in text
    assert f"knob recipe.epochs: {record.knobs['recipe.epochs']}" in text.splitlines()
    content = json.loads(shown(run, record.trial, capsys, "--json"))
    assert content["knobs"] == record.knobs
    assert content["measured"] == record.values


def test_a_run_shows_the_errors_of_its_estimates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call(["show", str(run.folder)]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("estimates: ")]
    assert "peak bytes off by" in line
    assert "before calibration" in line
    assert call(["show", str(run.folder), "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["estimate_errors"]
    assert errors["train_seconds"]["trials"] > 0
    assert errors["train_seconds"]["plain_median"] is not None


def test_a_trial_that_is_not_there_is_named(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", str(run.folder), "999"]) == 1
    assert "has no trial 999: it has 0 to" in capsys.readouterr().err


def test_a_top_k_accuracy_has_its_interval(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    record = run.record(run.front[0])
    append_record(run.folder, replace(record, values={**record.values, "local_top5_accuracy": 0.9}))
    assert re.search(r"^local_top5_accuracy: 90\.0 % \(\d+–\d+\)$", shown(run, record.trial, capsys), re.MULTILINE)
