"""A run's folder: what is written is read back, whatever byte a kill cut it at, and old records are taken over."""

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.errors import RunError
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.results.folder import (
    FILE,
    TRIALS,
    Identity,
    RunInfo,
    Spent,
    append_record,
    open_records,
    read_records,
    read_run,
    write_run,
)
from tuner.results.records.baseline import Baseline
from tuner.results.records.config import Budget, RunConfig
from tuner.results.records.trial import TrialRecord
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


def test_records_read_back_equal_and_are_the_users_own(folder: Path) -> None:
    assert read_records(folder, PLAN) == (record(0), record(1), record(2))
    assert stat.S_IMODE((folder / TRIALS).stat().st_mode) == 0o600


def cut_whole(content: bytes) -> bytes:
    return content[:-1]  # the last line is whole but for its end


def cut_torn(content: bytes) -> bytes:
    return content[:-9]


def zeros(content: bytes) -> bytes:
    return content + b"\0" * 64


@pytest.mark.parametrize(("edit", "left"), [(cut_whole, 3), (cut_torn, 2), (zeros, 3)])
def test_a_torn_end_is_repaired_before_the_next_record(folder: Path, edit: Edit, left: int) -> None:
    path = folder / TRIALS
    path.write_bytes(edit(path.read_bytes()))
    assert open_records(folder, PLAN) == [record(trial) for trial in range(left)]
    append_record(folder, record(9))
    assert [one.trial for one in read_records(folder, PLAN)] == [*range(left), 9]


def test_a_run_without_trials_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path, PLAN) == ()
    assert open_records(tmp_path, PLAN) == []


def test_the_template_is_the_plan_that_all_trials_share() -> None:
    assert replace(INFO.template, split=1) == PLAN
