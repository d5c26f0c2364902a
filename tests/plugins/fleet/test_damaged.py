"""What a study's database says is believed no more than a file from elsewhere, and its threads go on."""

import itertools
import json
import random
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState, create_trial

from tests.plugins.fleet.conftest import PHONE, Join
from tuner.errors import RunError
from tuner.results.folder import TRIALS, read_run
from tuner.results.records.config import Budget
from tuner.results.records.judging import comparable
from tuner.results.scores.objectives import OBJECTIVES
from tuner.results.scores.pareto import front
from tuner_fleet.address import read_address
from tuner_fleet.kinds import as_seen
from tuner_fleet.storage.opening import opened
from tuner_fleet.study.claims import RETRIES
from tuner_fleet.study.content import FIRST, NOT_FOR, RECORD
from tuner_fleet.study.heartbeat import Heartbeat
from tuner_fleet.study.reader import Reader


def test_a_damaged_record_does_not_keep_others_from_being_read(join: Join, address: str, tmp_path: Path) -> None:
    worker = join("one")
    for _ in range(2):
        worker.step()
    first, second = worker.trials.all()[:2]
    _overwrite(address, first.number, RECORD, {"state": 5})
    folder = tmp_path / "copy"
    folder.mkdir()
    with opened(read_address(address)) as storage:
        Reader(read_address(address), storage).write(folder)
    lines = (folder / TRIALS).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["trial"] for line in lines] == [second.number]
    assert read_run(folder).ended.endswith("1 damaged left out")


def _record(name: str, value: object) -> str:
    return f"json_set(value_json, '$.values.{name}', json('{json.dumps(value)}'))"


#: What who may write to the database can write: a table, and what the cells of one trial are set to.
CELLS = (
    ("trial_user_attributes", f"value_json = '{'[' * 200_000}'"),
    ("trial_user_attributes", "value_json = '{'"),
    ("trial_user_attributes", f"value_json = {_record('local_accuracy', 1e308)}"),
    ("trial_user_attributes", f"value_json = {_record('local_accuracy', 'best')}"),
    (
        "trial_user_attributes",
        'value_json = replace(value_json, \'"local_accuracy": \', \'"local_accuracy": NaN, "x": \')',
    ),
    ("trial_params", """distribution_json = '{"name": "Evil", "attributes": {}}'"""),
    ("trial_params", "distribution_json = 'null'"),
    ("trial_params", "distribution_json = '{}'"),
    ("trial_values", "value_type = 'evil'"),
    ("trials", "state = 'evil'"),
    ("trials", "datetime_start = 'evil'"),
    ("trials", "number = 'evil'"),
)


def test_a_cell_that_nobody_can_read_costs_its_trial_alone(join: Join, address: str, tmp_path: Path) -> None:
    worker = join("one", Budget(trials=3))
    for _ in range(2):
        worker.step()
    first, second = worker.trials.all()[:2]
    file = Path(address.removeprefix("sqlite:///"))
    for number, (table, change) in enumerate(CELLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        read = read_address(f"sqlite:///{shutil.copy(file, folder)}")
        _write(folder / file.name, f"UPDATE {table} SET {change} WHERE trial_id = {first._trial_id}")  # noqa: S608
        with opened(read) as storage:
            Reader(read, storage).write(folder)
        lines = (folder / TRIALS).read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["trial"] for line in lines] == [second.number], change
        assert read_run(folder).ended.endswith("1 damaged left out"), change
    _write(
        file, "INSERT INTO study_user_attributes (study_id, key, value_json) SELECT study_id, x'00', '1' FROM studies"
    )
    _write(file, "UPDATE trials SET datetime_start = 'evil' WHERE number = 0")
    other = join("two")
    assert [record.trial for record in other.study.records] == [second.number]
    with opened(read_address(address)) as storage:
        Heartbeat(storage, "tuner").stop()  # as where joining fails before it began
    _write(file, "UPDATE study_user_attributes SET value_json = '[[[['")
    with pytest.raises(RunError, match="the study's database is damaged, its attributes cannot be read"):
        join("three")


def test_attributes_that_nobody_can_have_meant_are_put_right(join: Join) -> None:
    worker = join("one", Budget(trials=3))
    damaged: list[dict[str, object]] = [
        {"rung": "x", NOT_FOR: 5},
        {"promoted": "x", NOT_FOR: [[]]},
        {"prior": [1], "rung": -1},
    ]
    for trial, attributes in zip(worker.trials.all(), damaged, strict=True):
        for attribute, value in attributes.items():
            worker.trials.set_attribute(trial.number, attribute, value)
    for _ in range(3):
        worker.step()
    assert [record.state for record in worker.study.records] == ["done"] * 3


@pytest.mark.parametrize("histories", [([10**6], 5, ["x"]), ([-1], {}, None)])
def test_a_history_that_cannot_be_is_none(join: Join, histories: tuple[Any, ...]) -> None:
    worker = join("one", Budget(trials=3))
    for trial, history in zip(worker.trials.all(), histories, strict=True):
        worker.trials.set_state(trial.number, TrialState.FAIL)
        worker.queue.study.add_trial(
            create_trial(
                state=TrialState.WAITING,
                params=trial.params,
                distributions=trial.distributions,
                system_attrs={RETRIES: history},
            )
        )
    for _ in range(3):
        worker.step()
    assert [record.state for record in worker.study.records] == ["done"] * 3


def test_a_heartbeat_survives_an_error(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    seen = []

    def look(_: object) -> list[int]:
        seen.append(next(looks))
        if len(seen) == 1:
            raise RuntimeError("read-only after a failover")
        return []

    monkeypatch.setattr("tuner_fleet.study.heartbeat.Heartbeat.look", look)
    join("one", beat=0.01)
    end = time.monotonic() + 20
    while len(seen) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(seen) > 2


def test_workers_that_claim_the_last_trial_at_the_same_moment_do_not_exceed_the_number(join: Join) -> None:
    workers = [join(f"worker-{number}", Budget(trials=8)) for number in range(4)]
    while len(workers[0].study.records) < 7:
        workers[0].step()
    for worker in workers:
        worker.hear()
    begun = [trial for worker in workers if (trial := worker.next()) is not None]  # nobody hears in between
    assert len(begun) == 1


def test_the_first_plans_are_not_lost_with_the_worker_that_made_the_study(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tuner.search.study.Study._enqueue_first", lambda _: [])
        first = join("one")
    assert first.queue.study.get_trials() == []
    first.shared.leave()
    second = join("two")
    waiting = second.queue.study.get_trials()
    assert len(waiting) > 1
    assert second.queue.study.user_attrs[FIRST] is None
    assert len(join("three").queue.study.get_trials()) == len(waiting)


def test_fronts_are_those_of_all_trials_however_they_were_heard(join: Join) -> None:
    numbers = random.Random(2)
    limits = Budget(trials=24)
    board, phone = join("board", limits), join("phone", limits, device=PHONE, slower=30.0)
    for worker in [board, phone] * 12:  # each is compared with all before
        trial = worker.begin()
        record = None if trial is None else worker.train(trial)
        if record is not None:
            values = {**record.values, "local_accuracy": numbers.random()}
            record = replace(record, values=values)
            heard, expected = worker.queue.heard, set[int]()
            is_on_front = heard.is_on_front(record)
            worker.keep(trial, record)
            groups: dict[str, list[Any]] = {}
            for one in heard.records.values():
                groups.setdefault(one.kind, []).append(one)
            for kind in heard.kinds:
                for records in groups.values():
                    seen = [as_seen(one, kind, heard.kinds, limits) for one in records]
                    there = comparable([one for one in seen if one is not None])
                    expected |= set(front(there, OBJECTIVES))
            assert heard.fronts == expected
            assert (record.trial in heard.fronts) == is_on_front
    assert len(board.queue.heard.kinds) == 2


def _write(file: Path, statement: str) -> None:
    connection = sqlite3.connect(file)
    with connection:
        assert connection.execute(statement).rowcount
    connection.close()


def _overwrite(address: str, trial: int, name: str, value: object) -> None:
    """Change an attribute of a trial that has ended, as who may write to the database can."""
    connection = sqlite3.connect(address.removeprefix("sqlite:///"))
    with connection:
        trials = "SELECT trial_id FROM trials WHERE number = ?"
        query = f"UPDATE trial_user_attributes SET value_json = ? WHERE trial_id = ({trials}) AND key = ?"  # noqa: S608
        assert connection.execute(query, (json.dumps(value), trial, name)).rowcount == 1
    connection.close()
