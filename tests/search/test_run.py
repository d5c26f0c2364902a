"""Whole runs over the made-up backend, trials in processes of their own."""

import errno
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from tests.search.conftest import UNTOUCHED, Moods, Tune
from tuner.cli.app import call
from tuner.commands.bundles.export import export
from tuner.commands.interruption import Interrupted
from tuner.commands.tune.run import process_started
from tuner.errors import RunError, UsageError
from tuner.events import Event, Finished, PhaseStarted, TrialFinished
from tuner.results.prior.file import Prior, PriorPlan, write_prior
from tuner.results.run import Run
from tuner.search.listener import TRYING
from tuner.search.processes.remote import RemoteSession, open_remote
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_trials_that_break_a_limit_or_crash_are_recorded_and_the_run_continues(tune: Tune, moods: Moods) -> None:
    moods("well", "hoard", "crash", "raise", "well")
    run = tune(trials=5, time="5m", memory="100MB")
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
    run = tune(trials=4, time="5m", memory="100MB")
    assert [record.state for record in run.records] == ["done", "failed", "failed", "done"]
    reasons = [record.reason for record in run.records[1:3]]
    assert reasons[0] == "what train returned: values: peak_bytes: could not convert string to float: 'much'"
    assert reasons[1] == "the process that trials are forked from was lost under it 2 times: it is stopped"


def test_a_trial_that_sleeps_forever_does_not_stretch_the_time(tune: Tune, moods: Moods) -> None:
    moods("well", "sleep")
    began = time.monotonic()
    tune(trials=1)
    limit = 2 + 3 * (time.monotonic() - began)  # in which a busy machine has to begin the second
    began = time.monotonic()
    run = tune(time=f"{limit:.1f}s", resume=True)
    assert time.monotonic() - began < limit * 1.02 + 20
    assert [record.state for record in run.records] == ["done", "killed"]
    assert run.records[1].reason == "--time: it did not end before the time was up"
    assert run.info.ended.startswith("the time is up")


def test_a_run_continues_where_it_ended_and_reports_what_was_before(
    tune: Tune, moods: Moods, heard: Any, tmp_path: Path
) -> None:
    moods("well")
    with pytest.raises(RunError, match="run does not exist, so there is no run to continue"):
        tune(trials=1, resume=True)
    assert not (tmp_path / "run").exists()
    first = tune(trials=2, listener=heard)
    assert heard.untouched_values == [first.info.untouched.values] == [UNTOUCHED]
    assert (heard.earlier, heard.end) == ([], None)
    task = first.info.task
    scored = task.local_val + task.global_val
    steps = [one for one in heard.steps if one[0] == "samples"]
    assert steps == [("samples", at, scored) for at in (0, task.local_val)]
    refused: Any = (
        ("holds a run already: add --resume", {}),
        ("was made with another seed, which --resume cannot change", {"resume": True, "seed": 5}),
        ("was made with another space", {"resume": True, "space": 'strategies = ["freeze"]'}),
    )
    for message, asked in refused:
        with pytest.raises(RunError, match=message):
            tune(trials=4, **asked)
    begun = time.monotonic()
    second = tune(trials=3, time="60s", resume=True, listener=heard)
    assert second.records[:2] == first.records == tuple(heard.earlier)
    assert second.info.spent.seconds > first.info.spent.seconds
    assert heard.untouched_values == [UNTOUCHED] * 2
    assert heard.order == ["resumed", "untouched", "untouched", "resumed"]
    assert [record.trial for record in heard.records] == [0, 1, 2]
    assert begun < heard.end < time.monotonic() + 60
    path = tmp_path / "run" / "run.json"  # as if the command had ended before the untouched model was scored
    path.write_text(json.dumps(json.loads(path.read_text()) | {"baselines": []}))
    assert tune(trials=4, resume=True).info.untouched.values == UNTOUCHED


def test_what_listens_may_end_the_run_which_continues(tune: Tune, moods: Moods, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        match event:
            case TrialFinished():
                raise LookupError("enough")

    def interrupt(event: Event) -> None:
        if event == PhaseStarted(TRYING):
            raise KeyboardInterrupt

    moods("well")
    with pytest.raises(LookupError, match="enough"):
        tune(trials=2, on_event=stop)
    with pytest.raises(Interrupted) as ended:
        tune(trials=2, resume=True, on_event=interrupt)
    assert ended.value._render_traceback_() == str(ended.value).splitlines()
    assert str(ended.value) == (
        f"interrupted; what was finished is kept in {tmp_path / 'run'}\n"
        f"to continue: tuner.run(..., out='{tmp_path / 'run'}', resume=True)"
    )
    heard = list[Event]()
    run = tune(trials=2, resume=True, on_event=heard.append)
    assert [event.record for event in heard if isinstance(event, TrialFinished)] == [run.records[1]]
    assert len(run.records) == 2
    assert heard[-1] == Finished(run)
    assert heard.index(Finished(run)) == len(heard) - 1


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


def test_a_run_without_an_end_is_refused(tune: Tune) -> None:
    with pytest.raises(UsageError, match=r"a run ends by --time or by --trials, but neither is given: add one"):
        tune()


def test_an_export_whose_weights_are_removed_or_to_a_full_disk_is_one_line_and_leaves_nothing(
    tune: Tune, moods: Moods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moods("well")
    run = tune(trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(RemoteSession, "export", Mock(side_effect=RuntimeError("the child's traceback")))
        patch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space left on device"):
            export(run, tmp_path / "bundle", refit=False)

    def removed(*arguments: Any, **named: Any) -> Any:
        for weights in run.folder.rglob("weights.safetensors"):
            weights.unlink()
        return open_remote(*arguments, **named)

    monkeypatch.setattr("tuner.commands.opening.open_remote", removed)
    with pytest.raises(RunError, match="was removed by its run, which continues: export again"):
        export(run, tmp_path / "bundle", refit=False)
    assert not list(tmp_path.glob("*bundle*"))


DAY = 86_400.0


def test_a_clock_that_is_set_back_and_forward_changes_neither_the_end_nor_the_time_spent(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, now = itertools.cycle((-DAY, 0.0, DAY)), time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(steps))
    begun = time.monotonic()
    first = tune(time="60s", trials=2)
    again = tune(time="60s", trials=3, resume=True)
    took = time.monotonic() - begun
    assert (first.info.ended, again.info.ended) == ("2 trials are done", "3 trials are done")
    assert 0 < first.info.spent.seconds < again.info.spent.seconds <= took < 60


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_the_start_of_this_process_does_not_depend_on_the_time_of_day(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    age = time.time() - psutil.Process().create_time()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + step)
    assert time.monotonic() - process_started() == pytest.approx(age, abs=1.0)


def test_a_system_without_proc_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tuner.commands.tune.run.STATUS", tmp_path / "none")
    with pytest.raises(RunError, match="tuner needs /proc, to see how much memory a trial takes: mount it"):
        process_started()


SPACE = """
strategies = ["gdm", "freeze", "cache"]
prior = "prior.toml"
[knobs.recipe]
epochs = { low = 1, high = 20 }
"""


def test_the_second_run_begins_with_the_best_of_the_first(tune: Tune, heard: Any, tmp_path: Path) -> None:
    first = tune(trials=3)
    second = tune(trials=1, out=tmp_path / "second")
    assert first.best is not None
    assert second.records[0].knobs == first.record(first.best).knobs
    afresh = tune(trials=1, out=tmp_path / "afresh", earlier="none", seed=5)
    assert afresh.records[0].knobs == first.records[0].knobs  # the first anchor
    script = tune(trials=1, out=tmp_path / "script", takes_newest=False)
    assert script.records[0].knobs == first.records[0].knobs
    tune(trials=2, out=tmp_path / "afresh", resume=True, seed=5, listener=heard)  # and stays so
    assert not [line for line in heard.lines if "starting from the front" in line]
    named = tune(trials=1, out=tmp_path / "named", earlier=tmp_path / "run", deterministic=True)
    assert named.records[0].knobs == {**second.records[0].knobs, "runtime.threads": 1}
    alone = tune(trials=1, out=tmp_path / "alone", deterministic=True)
    assert alone.records[0].knobs == {**afresh.records[0].knobs, "runtime.threads": 1}


def test_a_run_tries_the_plans_of_a_prior_first_and_says_so(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tune(trials=4)
    file = tmp_path / "prior.toml"
    plans = tuple(PriorPlan(run.record(trial).knobs) for trial in run.front)
    write_prior(file, Prior((), plans))
    named = tune(trials=2, out=tmp_path / "named", deterministic=True, prior=file)
    assert named.records[0].prior is not None
    best = plans[named.records[0].prior - 1]
    assert named.records[0].knobs == {**best.knobs, "runtime.threads": 1}
    assert named.records[1].prior is None  # of two trials one
    again = tune(SPACE, trials=1, out=tmp_path / "again", deterministic=True)
    assert again.records[0].knobs == named.records[0].knobs
    capsys.readouterr()
    assert call(["show", str(named.folder), "--trials"]) == 0
    assert f"plan {named.records[0].prior} of the prior" in capsys.readouterr().out
    assert call(["show", str(named.folder), "--details"]) == 0
    assert "1 began with plans of the prior" in capsys.readouterr().out
