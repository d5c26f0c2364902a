"""Limits that each worker has for itself: what one refuses, another may try, and none waits for ever."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from benchmarks.fleet.worker import MODEL
from tests.cli.printed import printed_json
from tests.plugins.fleet.conftest import BOARD, PHONE
from tests.search.conftest import Heard
from tuner.cli.app import call
from tuner.commands.runs.source import open_run
from tuner.planner.device import nominal
from tuner.results.kinds import Kind
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.study.content import KINDS, RECORD, WORKER

Join = Callable[..., Any]
RATES = nominal(MODEL)
SMALL = Budget(trials=6, memory_bytes=1_000)


def test_a_plan_that_is_too_large_for_one_is_tried_by_an_equal_device_with_more_memory(join: Join) -> None:
    small = join("small", SMALL)
    small.step()
    refused = small.study.records[0]
    assert refused.state == "rejected"
    assert "memory" in refused.constraint
    large = join("large")
    assert large.study.records == []
    for _ in range(3):
        large.step()
    tried = [record for record in large.study.records if record.knobs == refused.knobs]
    assert [record.state for record in tried] == ["done"]
    assert large.queue.learnable(0, large.study.records) != []
    small.hear()
    fits = [record.constraint["memory"] <= 0 for record in small.study.records if record.state == "done"]
    assert fits == [False, False, False]  # what the large one trained takes more than the small one has
    learned = [trial for trial in small.queue.learnable(0, small.study.records) if trial.state is TrialState.COMPLETE]
    assert [trial.constraints["memory"] > 0 for trial in learned] == [True, True, True]
    assert large.queue.learnable(0, large.study.records)[0].constraints["memory"] < 0


def test_the_front_of_each_kind_obeys_the_memory_of_that_kind(join: Join, address: str) -> None:
    small, large = join("small", SMALL), join("large")
    for _ in range(3):
        large.step()
    shown = [open_run(address, worker.shared.kind) for worker in (large, small)]
    assert [run.info.config.limits.memory_bytes for run in shown] == [None, 1_000]
    assert [bool(run.front) for run in shown] == [True, False]
    assert large.queue.unwanted(large.study.records, large.study.front()).isdisjoint(large.study.front())
    small.hear()
    assert small.queue.unwanted(small.study.records, small.study.front()).isdisjoint(large.study.front())


def test_show_says_which_kind_costs_are_of(join: Join, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    small, large = join("small", SMALL), join("large")
    for _ in range(3):
        large.step()
    content = printed_json(capsys, "show", address, "--kind", small.shared.kind)
    assert content["kind"] == small.shared.kind
    assert content["kinds"] == {one.shared.kind: str(one.shared.device) for one in (small, large)}
    assert call(["show", address, "--kind", small.shared.kind]) == 0
    expected = (
        f"costs as on {small.shared.kind} (Board, 4 cores, 2 GiB, --memory 1.0 kB), measured of 3 of 3 trials, "
        f"translated of the others; --kind shows {large.shared.kind} (Board, 4 cores, 2 GiB)"
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert expected in shown  # a device as fast measured them
    assert re.search(r"3 of 3 trials do not count because of --memory; nearest miss: trial \d, [\d,.]+ times", shown)
    assert call(["show", address, "--kind", "x"]) == 1
    assert "--kind must name one kind of device, got 'x': the kinds are" in capsys.readouterr().err


def test_trials_that_are_killed_on_another_kind_count_towards_the_end(join: Join) -> None:
    phone, board = join("phone", Budget(trials=2), device=PHONE), join("board", Budget(trials=2))
    for _ in range(2):
        trial = phone.begin()
        record = phone.train(trial)
        phone.keep(
            trial, replace(record, state="killed", values={}, reason="--memory: ...", constraint={"memory": 0.1})
        )
    assert phone.reason_to_end() == "2 trials are done"
    board.hear()
    assert board.study.records == []
    assert board.begin() is None
    assert board.reason_to_end() == "2 trials are done"


@pytest.mark.parametrize("state", ["rejected", "killed"])
@pytest.mark.parametrize("limit", ["time", "storage"])
def test_the_end_and_the_disk_of_a_worker_bind_nobody_else(join: Join, state: str, limit: str) -> None:
    late, other = join("late"), join("other")
    trial = late.begin()
    record = late.train(trial)
    ended = replace(record, state=state, values={}, reason=f"--{limit}: ...", constraint={limit: 0.1})
    late.keep(trial, ended)
    other.hear()
    assert other.study.records == []
    late.hear()
    assert late.study.records == [ended]
    waiting = [one for one in other.trials.all() if one.state is TrialState.WAITING]
    again = [one for one in waiting if one.params == trial.params]
    assert len(again) == (state == "rejected")  # of a killed one, whoever suggests it may train it
    taken = [late.queue.waiting(0) for _ in waiting]
    assert not [one for one in taken if one is not None and one.params == trial.params]
    if again:
        begun = other.queue.waiting(0)
        assert begun is not None
        assert begun.params == trial.params


def test_costs_heard_before_follow_what_the_own_trials_show(join: Join) -> None:
    limits = Budget(trials=20)
    board, phone = join("board", limits), join("phone", limits, device=PHONE, slower=1e4)  # it was busy when measured
    for _ in range(4):
        board.step()
    phone.hear()
    taken = {record.trial: record.values["train_seconds"] for record in board.study.records}

    def ratios() -> list[float]:
        shown = {record.trial: record.values["train_seconds"] for record in phone.study.records}
        return [shown[trial] / seconds for trial, seconds in taken.items()]

    before = ratios()
    assert min(before) > 50
    for _ in range(6):
        phone.step()
    phone.hear()
    assert max(ratios()) < min(before) / 5
    assert len(phone.study.records) == 10


def test_a_worker_that_measured_less_leaves_the_rates_to_whoever_measures_all(join: Join) -> None:
    first = join("first", rates=replace(RATES, complete=False))
    second = join("second", rates=replace(RATES, step_seconds=7.0))
    third = join("third", rates=replace(RATES, step_seconds=9.0))
    published = third.queue.study.user_attrs[KINDS + BOARD.name]
    assert published["rates"]["step_seconds"] == 7.0
    first.queue.heard.learn_kinds(first.queue.study.user_attrs)
    assert first.queue.heard.kinds[BOARD.name].rates.step_seconds == 7.0
    assert second.shared.kind == BOARD.name


class Visit(Heard):
    """While a run has a study for itself, a phone joins it and repeats the first trial."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def trial(self, record: TrialRecord) -> None:
        """Let the phone join after the first trial."""
        if record.trial:
            return
        with opened(read_address(self._address)) as storage:
            study = optuna.load_study(study_name="tuner", storage=storage)
            study.set_user_attr(KINDS + PHONE.name, asdict(Kind(PHONE, RATES)))
            mine = study.get_trials(states=(TrialState.COMPLETE,))[0]
            mine.user_attrs = {RECORD: {**mine.user_attrs[RECORD], "kind": PHONE.name}, WORKER: "phone"}
            study.add_trial(mine)


@pytest.mark.slow
def test_a_folder_knows_the_kinds_that_joined_while_it_ran(
    tune: Callable[..., Any], moods: Callable[..., None], address: str
) -> None:
    moods("well")
    run = tune(trials=4, study=address, listener=Visit(address))
    assert set(run.info.kinds) == {run.info.kind, PHONE.name}
    assert [record.kind for record in run.records].count(PHONE.name) == 1
    assert open_run(run.folder, PHONE.name).info.kind == PHONE.name
