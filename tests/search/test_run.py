"""A whole run over the made-up backend, trials in processes of their own."""

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.search.conftest import Moods, Tune
from tuner.commands.bundles.export import export
from tuner.errors import BudgetError, RunError
from tuner.events import Event, Finished, TrialFinished
from tuner.results.run import Run
from tuner.search.processes.remote import RemoteSession, open_remote
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_trials_that_break_a_limit_or_crash_are_recorded_and_the_run_continues(tune: Tune, moods: Moods) -> None:
    moods("well", "hoard", "crash", "raise", "well")
    run = tune(trials=5, time="60s", memory="100MB")
    assert [record.state for record in run.records] == ["done", "killed", "failed", "failed", "done"]
    killed, crashed, raised = run.records[1:4]
    assert killed.reason.startswith("--memory: took ")
    assert killed.reason.endswith(" MB, but 100 MB are allowed")
    assert killed.constraint["memory"] > 0
    assert crashed.reason == "its process ended with exit code 9: a library or a plugin ended it"
    assert raised.reason == "ValueError: this is no tensor"
    assert "in train" in raised.notes[0]
    assert set(run.front) <= {0, 4}


def test_what_a_trial_says_wrong_and_what_it_does_to_the_process_that_forks_costs_that_trial(
    tune: Tune, moods: Moods
) -> None:
    moods("numpy", "text", "stop-server", "stop-server", "well")
    run = tune(trials=4, time="90s", memory="100MB")
    assert [record.state for record in run.records] == ["done", "failed", "failed", "done"]
    reasons = [record.reason for record in run.records[1:3]]
    assert reasons[0] == "what train returned: values: peak_bytes: could not convert string to float: 'much'"
    assert reasons[1] == "the process that trials are forked from was lost under it 2 times: it is stopped"


def test_a_trial_that_sleeps_forever_does_not_stretch_the_time(tune: Tune, moods: Moods) -> None:
    moods("well", "sleep")
    started = time.monotonic()
    run = tune(time="12s")  # in which a busy machine has to end the first
    assert time.monotonic() - started < 12 * 1.02 + 20
    assert [record.state for record in run.records] == ["done", "killed"]
    assert run.records[1].reason == "--time: it did not end before the time was up"
    assert run.info.ended == "the time is up"


def test_a_run_continues_where_it_ended(tune: Tune, moods: Moods) -> None:
    moods("well")
    first = tune(trials=2)
    with pytest.raises(RunError, match="holds a run already: add --resume"):
        tune(trials=4)
    second = tune(trials=4, resume=True)
    assert second.records[:2] == first.records
    assert len(second.records) == 4
    assert second.info.spent.seconds > first.info.spent.seconds
    assert (
        second.info.untouched.values == first.info.untouched.values == {"local_accuracy": 0.0, "global_accuracy": 0.9}
    )


def test_what_listens_may_end_the_run_which_continues(tune: Tune, moods: Moods) -> None:
    def stop(event: Event) -> None:
        match event:
            case TrialFinished():
                raise LookupError("enough")

    moods("well")
    with pytest.raises(LookupError, match="enough"):
        tune(trials=2, on_event=stop)
    heard = list[Event]()
    run = tune(trials=2, resume=True, on_event=heard.append)
    assert [event.record for event in heard if isinstance(event, TrialFinished)] == [run.records[1]]
    assert len(run.records) == 2
    assert heard[-1] == Finished(run)
    assert heard.index(Finished(run)) == len(heard) - 1


def test_the_untouched_model_is_scored_where_an_earlier_command_ended_before_it_was(
    tune: Tune, moods: Moods, tmp_path: Path
) -> None:
    moods("well")
    tune(trials=1)
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"baselines": []}))
    assert tune(trials=2, resume=True).info.untouched.values == {"local_accuracy": 0.0, "global_accuracy": 0.9}


def test_resuming_a_run_that_is_not_there_is_refused(tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="run does not exist, so there is no run to continue"):
        tune(trials=1, resume=True)
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_reports_what_was_before(tune: Tune, moods: Moods, heard: Any) -> None:
    moods("well")
    first = tune(trials=2, listener=heard)
    assert heard.untouched_values == [first.info.untouched.values]
    assert (heard.earlier, heard.end) == ([], None)
    begun = time.monotonic()
    tune(trials=3, time="60s", resume=True, listener=heard)
    assert heard.untouched_values == [first.info.untouched.values] * 2
    assert tuple(heard.earlier) == first.records
    assert heard.order == ["resumed", "untouched", "untouched", "resumed"]
    assert [record.trial for record in heard.records] == [0, 1, 2]
    assert begun < heard.end < time.monotonic() + 60


def test_a_run_of_a_task_object_is_exported(tune: Tune, moods: Moods, tmp_path: Path, task: Task) -> None:
    moods("well")
    run = tune(trials=1)
    assert export(run, tmp_path / "bundle", refit=False).joinpath("bundle.json").is_file()
    assert export(Run.open(run.folder, task), tmp_path / "again", refit=False).is_dir()
    with pytest.raises(
        RunError,
        match=r"was made from a task given in Python, .*: call tuner\.export\(tuner\.Run\.open\(.*, task\), out\)",
    ):
        export(Run.open(run.folder), tmp_path / "third")
    assert sorted(path.name for path in tmp_path.iterdir() if "third" in path.name) == []


def test_another_seed_or_space_is_not_the_same_run(tune: Tune, moods: Moods) -> None:
    moods("well")
    tune(trials=1)
    with pytest.raises(RunError, match="was made with another seed, which --resume cannot change"):
        tune(trials=2, resume=True, seed=5)
    with pytest.raises(RunError, match="was made with another space"):
        tune(space='strategies = ["freeze"]', trials=2, resume=True)


def test_a_run_without_an_end_is_refused(tune: Tune) -> None:
    with pytest.raises(BudgetError, match=r"a run ends by --time or by --trials, but neither is given: add one"):
        tune()


def failing(*_: object, **__: object) -> None:
    raise RuntimeError("the child's traceback")


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_exporting_a_trial_whose_weights_its_run_removes_meanwhile_is_one_line(
    tune: Tune, moods: Moods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moods("well")
    run = tune(trials=1)

    def removed(*arguments: Any, **named: Any) -> Any:
        for weights in run.folder.rglob("weights.safetensors"):
            weights.unlink()
        return open_remote(*arguments, **named)

    monkeypatch.setattr("tuner.commands.opening.open_remote", removed)
    with pytest.raises(RunError, match="was removed by its run, which continues: export again"):
        export(run, tmp_path / "bundle", refit=False)
    assert not (tmp_path / "bundle").exists()


def test_an_export_to_a_full_disk_leaves_nothing(
    tune: Tune, moods: Moods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moods("well")
    run = tune(trials=1)
    monkeypatch.setattr(RemoteSession, "export", failing)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left on device"):
        export(run, tmp_path / "bundle", refit=False)
    assert not list(tmp_path.glob("*bundle*"))
