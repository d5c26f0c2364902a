"""A run's folder: what is written is read back, whatever byte a kill cut it at, and old records are taken over."""

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import RunError
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.results.folder import (
    EXPORTS,
    FILE,
    TRIALS,
    ExportInfo,
    Identity,
    RunInfo,
    Spent,
    append_export,
    append_record,
    open_records,
    read_exports,
    read_records,
    read_run,
    write_run,
)
from tuner.results.records.baseline import UNTOUCHED, Baseline
from tuner.results.records.config import Budget, RunConfig
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES

PLAN = TrialPlan(example_model(3), example_task(), split=1)
INFO = RunInfo(
    Identity("0" * 32, "Space()", 7, deterministic=True),
    RunConfig("digits", seed=7, deterministic=True, limits=Budget(trials=3)),
    "example",
    "smoke",
    1,
    PLAN.model,
    PLAN.task,
    OBJECTIVES,
    (Baseline("untouched", {"local_accuracy": 0.5}),),
    Spent(1.5, 20, 3),
    "3 trials are done",
)
Edit = Callable[[bytes], bytes]


def record(trial: int) -> TrialRecord:
    return TrialRecord(trial, "done", PLAN, {"recipe.epochs": 3}, {"local_accuracy": 0.1 * trial, "peak_bytes": 1e6})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for trial in range(3):
        append_record(tmp_path, record(trial))
    return tmp_path


def test_run_json_reads_back_equal_and_is_the_users_own(tmp_path: Path) -> None:
    write_run(tmp_path, INFO)
    assert read_run(tmp_path) == INFO
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "has run format None"),
        ('{"format": 2}', "has run format 2, this version reads 1: update tuner"),
        ('{"format": 1}', "cannot be read: identity: Field required"),
    ],
)
def test_what_is_no_run_json_is_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunError, match=reason) as error:
        read_run(tmp_path)
    assert "\n" not in str(error.value)


def test_an_accuracy_of_a_baseline_that_is_none_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, replace(INFO, baselines=(Baseline(UNTOUCHED, {"global_accuracy": 0.25}),)))
    (tmp_path / FILE).write_text((tmp_path / FILE).read_text().replace("0.25", "1e308"))
    with pytest.raises(
        RunError, match=r"cannot be read: baselines.* global_accuracy must be between 0 and 1, got 1e\+308"
    ):
        read_run(tmp_path)


def test_records_read_back_equal_and_are_the_users_own(folder: Path) -> None:
    assert read_records(folder, PLAN) == (record(0), record(1), record(2))
    assert stat.S_IMODE((folder / TRIALS).stat().st_mode) == 0o600


def changed(place: tuple[str, ...], value: float) -> str:
    """Return a record's line, with another value somewhere in it."""
    content = inner = record(0).to_dict()
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        (lambda content: content[:-1], 3),  # the last line is whole but for its end
        (lambda content: content[:-9], 2),
        (lambda content: content + b"\0" * 64, 3),
        (lambda content: content + b"[" * 100_000 + b"\n", 3),
    ],
)
def test_a_torn_end_is_repaired_before_the_next_record(folder: Path, edit: Edit, left: int) -> None:
    path = folder / TRIALS
    path.write_bytes(edit(path.read_bytes()))
    assert read_records(folder, PLAN) == tuple(open_records(folder, PLAN)) == tuple(map(record, range(left)))
    append_record(folder, record(9))
    assert [one.trial for one in read_records(folder, PLAN)] == [*range(left), 9]


def test_a_run_without_trials_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path, PLAN) == ()
    assert open_records(tmp_path, PLAN) == []


def test_the_template_is_the_plan_that_all_trials_share() -> None:
    assert replace(INFO.template, split=1) == PLAN


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"trial": 0}', "the record of trial 0 cannot be read"),
        ('{"state": "done"}', "the record cannot be read"),
        ('{"trial": "x"}', "the record cannot be read"),
        ('{"trial": 0, "state": "won", "plan": null}', "the record of trial 0 cannot be read"),
        ('{"trial": 0, "state": "done", "plan": 3}', "the record of trial 0 cannot be read"),
        ('{"trial": 0, "state": "done", "plan": null, "values": {"a": "b"}}', "the record of trial 0 cannot be read"),
        (changed(("values", "global_accuracy"), 9e18), "global_accuracy must be between 0 and 1"),
        (changed(("plan", "data", "alpha"), 1e308), r"data.alpha must be in \[0, 1\]"),
        (changed(("plan", "recipe", "learning_rate"), float("nan")), "recipe.learning_rate must be above 0"),
        (changed(("trial",), float("inf")), "cannot convert float infinity"),
    ],
)
def test_a_line_that_is_no_record_is_reported(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / TRIALS).write_text(line + "\n")
    with pytest.raises(RunError, match=says):
        read_records(tmp_path, INFO.template)


def test_exports_read_back_without_damaged_lines_and_absence_is_none(tmp_path: Path) -> None:
    assert read_exports(tmp_path) == ()
    first, again = (
        ExportInfo("a", 1, refit=True),
        ExportInfo("a", 2, refit=False, scores={"test_accuracy": 0.5}, samples=4),
    )
    append_export(tmp_path, first)
    path = tmp_path / EXPORTS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    changes: tuple[dict[str, Any], ...] = (
        {"bundle": "\x1b[2J"},
        {"trial": -1},
        {"samples": 10**400},
        {"scores": {"test_mae": 1e999}},
        {"refit": []},
    )
    lines = [json.dumps({"bundle": "b", "trial": 0, "refit": True, **change}) for change in changes]
    path.write_text("\n".join((path.read_text(), *lines, "[" * 100_000, "{}", "torn")))
    assert read_exports(tmp_path) == (first,)
    append_export(tmp_path, again)
    assert read_exports(tmp_path) == (again,)
    path.rename(tmp_path / "other")
    path.symlink_to("other")
    assert read_exports(tmp_path) == ()


@pytest.mark.parametrize("name", [FILE, TRIALS])
def test_links_and_pipes_of_a_run_are_not_read(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, INFO)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / "other").write_bytes(content)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("other")
    with pytest.raises(RunError, match="is a link, which may lead out of the folder"):
        Run.open(tmp_path)


def test_a_front_without_an_objectives_value_and_names_that_steer_a_terminal_are_reported(tmp_path: Path) -> None:
    write_run(tmp_path, INFO)
    append_record(tmp_path, replace(record(0), values={"local_accuracy": float("nan")}))
    with pytest.raises(RunError, match="trial 0 has no value of local_accuracy"):
        Run.open(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    content["objectives"][0]["name"] = "\x1b[2J"
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(RunError, match="a name or unit is no text"):
        read_run(tmp_path)
