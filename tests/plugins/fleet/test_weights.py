"""Weights of a shared study's front: where all can read them, and what becomes of them if the store does not answer."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from threading import Event, Timer
from typing import Any
from uuid import uuid4

import pytest

from tests.plugins.fleet.conftest import Worker
from tuner.bundle.format import WEIGHTS
from tuner.commands.runs.source import run_to_export
from tuner.errors import RunError, TunerError, UsageError
from tuner.results.records.config import Budget
from tuner.search.processes.guard import Interrupt
from tuner_fleet.artifacts.stores import FolderStore, open_writable
from tuner_fleet.artifacts.weights import SharedWeights
from tuner_fleet.study.content import ARTIFACT, weights_in

Join = Callable[..., Worker]


def write_weights(worker: Worker, number: int) -> Path:
    """Write weights that hold a trial's number."""
    file = worker.weights(number)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"weights {number}")
    return file


def carry(worker: Worker) -> None:
    """Carry a trial through."""
    trial = worker.begin()
    record = worker.train(trial)
    assert record is not None
    write_weights(worker, trial.number)
    worker.keep(trial, record)


def train(worker: Worker) -> None:
    """Carry a trial through, and wait until its weights are sent, or cannot be."""
    carry(worker)
    worker.settle()


def weights_of(worker: Worker) -> SharedWeights:
    assert worker.sender is not None
    return worker.sender


def named(worker: Worker) -> dict[int, str]:
    """Return the names of weights, by trial."""
    trials = worker.queue.study.get_trials()
    return {trial.number: name for trial in trials if (name := weights_in(trial)) is not None}


def names_in(place: Path) -> set[str]:
    return {file.name for file in place.iterdir()}


def exported(address: str, trial: int, place: Path) -> str:
    """Return the weights with which a trial is exported."""
    with run_to_export(address, str(trial), place) as run:
        return (run.folder / "trials" / str(trial) / WEIGHTS).read_text()


def test_weights_of_the_front_are_where_all_can_read_them(join: Join, address: str, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    one, other = (join(name, Budget(trials=8), artifacts=shared) for name in ("one", "other"))
    for _ in range(4):
        train(one)
        train(other)
    with run_to_export(address, "0", shared) as run:
        assert (run.folder / "trials" / "0" / WEIGHTS).read_text() == "weights 0"
    for trial in run.front:
        assert exported(address, trial, shared) == f"weights {trial}"
    assert not run.folder.exists()
    with pytest.raises(UsageError, match="a study is exported with --artifacts"), run_to_export(address, "0", None):
        pass
    with pytest.raises(RunError, match=r"weights of trial 0 are not in .*: give --artifacts as the workers have it"):
        exported(address, 0, tmp_path / "elsewhere")


def test_weights_that_nobody_needs_are_removed_and_not_sent_either(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, away = tmp_path / "shared", tmp_path / "away"
    one = join("one", artifacts=place)
    weights, name = weights_of(one), str(uuid4())
    file = tmp_path / WEIGHTS
    file.write_text("weights")
    weights.send(7, file, name)
    one.settle()
    assert (place / name).read_text() == "weights"
    weights.drop({8})
    one.settle()
    assert names_in(place) == {name}
    weights.drop({7})
    one.settle()
    assert names_in(place) == set()

    place.rename(away)
    weights.send(8, file, str(uuid4()))
    one.settle()
    away.rename(place)
    sent = list[str]()
    monkeypatch.setattr(FolderStore, "write", lambda _, name, _content: sent.append(name))
    weights.drop({8})
    weights.leave(5.0, Interrupt())
    assert sent == []


def test_no_trial_is_lost_where_weights_cannot_be_sent_for_a_while(
    join: Join, address: str, tmp_path: Path, heard: Any
) -> None:
    place, away = tmp_path / "shared", tmp_path / "away"
    one = join("one", artifacts=place, listener=heard)
    place.rename(away)
    for _ in range(2):
        train(one)
    assert [record.trial for record in one.study.records] == [0, 1]
    (line,) = (line for line in heard.lines if line.startswith("warning:"))
    assert line == (
        f"warning: {place} cannot be used (FileNotFoundError: [Errno 2] No such file or directory: '{place}'): see "
        "that it is there; until then, weights stay in this worker's folder"
    )
    away.rename(place)
    weights_of(one).leave(5.0, Interrupt())  # does not wait for the pause
    for _ in range(2):
        train(one)
    assert f"{place} takes weights again" in heard.lines
    for trial in one.study.front():
        assert exported(address, trial, place) == f"weights {trial}"


def test_a_store_that_does_not_answer_is_not_asked_after_each_trial(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = join("one", artifacts=tmp_path / "shared")
    asked = list[str]()

    def write(_: object, name: str, _content: object) -> None:
        asked.append(name)
        raise RunError("away")

    monkeypatch.setattr(FolderStore, "write", write)
    for _ in range(3):
        train(one)
    assert len(asked) == 1
    assert len(one.study.records) == 3


def test_weights_that_an_earlier_session_could_not_send_are_sent_by_the_next(
    join: Join, address: str, tmp_path: Path, heard: Any
) -> None:
    place, away = tmp_path / "shared", tmp_path / "away"
    one = join("one", artifacts=place, listener=heard, worker="one")
    train(one)
    sent = names_in(place)
    place.rename(away)
    train(one)
    one.shared.leave()
    assert heard.lines[-1] == (
        f"warning: the weights of trial 1 were not sent to {place}, and are in this worker's folder: continue with "
        "--resume to send them"
    )
    away.rename(place)
    with pytest.raises(RunError, match=r"the weights of trial 1 are not in"):
        exported(address, 1, place)
    join("one", artifacts=place, worker="one").settle()
    assert exported(address, 1, place) == "weights 1"
    assert sent < names_in(place)
    assert exported(address, 0, place) == "weights 0"


def test_what_could_not_be_removed_is_removed_later(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, denied = tmp_path / "shared", list[str]()
    one = join("one", artifacts=place, worker="one")
    for _ in range(5):
        train(one)
    weights, names = weights_of(one), named(one)
    first, second, *rest = sorted(names)

    def deny(_: object, name: str) -> None:
        denied.append(name)
        raise RunError("away")

    with monkeypatch.context() as patch:
        patch.setattr(FolderStore, "remove", deny)
        weights.drop({first})
        one.settle()
        assert denied == [names[first]]
        names[99] = str(uuid4())
        weights.send(99, one.weights(first), names[99])
        weights.leave(5.0, Interrupt())
        assert names[99] in names_in(place)  # what is to be removed is not in its way
    weights.leave(5.0, Interrupt())
    assert names_in(place) == set(names.values()) - set(denied)

    weights.drop({99, first})
    one.settle()
    del names[99]
    one.weights(second).unlink()
    later = SharedWeights(place, print)  # a new session knows nothing
    later.adopt(names, one.folder, rest)
    later.settle(60, Interrupt())
    assert names_in(place) == {names[number] for number in rest}
    later.drop(rest)  # it has taken over those too
    later.settle(60, Interrupt())
    assert names_in(place) == set()


@pytest.mark.parametrize("shares", [True, False])
def test_a_plan_that_is_tried_again_has_no_weights_of_the_worker_that_died(
    join: Join, address: str, tmp_path: Path, *, shares: bool
) -> None:
    place, stale = tmp_path / "shared", str(uuid4())
    dead = join("dead", artifacts=place, worker="dead")
    other = join("other", artifacts=place if shares else None, grace=1.0)
    trial = dead.begin()
    write_weights(dead, trial.number)
    trial.set_user_attr(ARTIFACT, stale)  # as through Optuna's proxy, where a trial is not ended at once
    assert other.retired() == [trial.number]
    for _ in range(6):
        train(other)
    (again,) = (one.number for one in other.queue.study.trials if one.system_attrs.get("failed_trial") == trial.number)
    (place / stale).write_text("weights of a training that was cut short")
    if shares:
        assert exported(address, again, place) == f"weights {again}"
    else:
        with pytest.raises(RunError, match=f"the weights of trial {again} are with the worker that trained it"):
            exported(address, again, place)
    before = names_in(place)
    (place / stale).unlink()
    join("dead", artifacts=place, worker="dead").settle()
    assert names_in(place) == before - {stale}  # the trial failed: nothing of it is sent


@pytest.fixture
def hanging(join: Join, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Let a worker join whose store takes nothing and does not say so."""
    over, joined = Event(), list[Worker]()

    def go(**settings: Any) -> Worker:
        joined.append(join("one", artifacts=tmp_path / "shared", listener=heard, **settings))
        monkeypatch.setattr(FolderStore, "write", lambda *_: over.wait(20))
        return joined[0]

    yield go
    over.set()
    joined[0].settle()


def test_a_store_that_hangs_delays_no_trial(hanging: Join) -> None:
    one = hanging()
    began = time.monotonic()
    for _ in range(3):
        carry(one)
    assert time.monotonic() - began < 5
    assert len(one.study.records) == 3


@pytest.mark.parametrize("ends", ["the time", "Ctrl-C before", "Ctrl-C meanwhile", "the longest wait"])
def test_a_store_that_hangs_does_not_delay_the_end(
    hanging: Join, heard: Any, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    interrupt = Interrupt()
    one = hanging(interrupt=interrupt, end=time.monotonic() + (10.0 if ends == "the time" else 3600.0))
    carry(one)
    if ends == "the longest wait":
        monkeypatch.setattr("tuner_fleet.artifacts.weights.CLOSING_SECONDS", 0.2)
    elif ends != "the time":
        timer = Timer(0.3 if ends == "Ctrl-C meanwhile" else 0.0, interrupt.ask)
        timer.start()
        if ends == "Ctrl-C before":
            timer.join()
    began = time.monotonic()
    one.shared.leave()
    assert time.monotonic() - began < 15
    assert heard.lines[-1].startswith("warning: the weights of trial 0 were not sent to ")


def test_the_end_waits_for_weights_that_are_being_sent(
    join: Join, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, written = join("one", artifacts=tmp_path / "shared", listener=heard), list[str]()

    def write(_: object, name: str, _content: object) -> None:
        time.sleep(0.3)
        written.append(name)

    monkeypatch.setattr(FolderStore, "write", write)
    carry(one)
    one.shared.leave()
    assert written == [named(one)[0]]
    assert not any(line.startswith("warning") for line in heard.lines)


@pytest.mark.parametrize(
    ("before", "after", "file"),
    [(None, 0o700, 0o600), (0o2770, 0o2770, 0o660), (0o755, 0o755, 0o600), (0o1777, 0o1777, 0o660)],
)
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_folder_keeps_its_mode_and_its_files_are_for_whoever_may_write_there(
    tmp_path: Path, before: int | None, after: int, file: int, umask: int
) -> None:
    folder = tmp_path / "shared"
    if before is not None:
        folder.mkdir()
        folder.chmod(before)
    umask = os.umask(umask)
    try:
        store = open_writable(folder)
        assert names_in(folder) == set()
        store.write("weights", BytesIO(b"weights"))
    finally:
        os.umask(umask)
    assert (folder / "weights").read_bytes() == b"weights"
    assert (folder.stat().st_mode & 0o7777, (folder / "weights").stat().st_mode & 0o7777) == (after, file)


def test_a_folder_that_takes_no_files_is_refused_at_the_start(join: Join, tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=r"^/proc cannot be "):
        join("one", artifacts=Path("/proc"))
    (tmp_path / "file").touch()
    with pytest.raises(TunerError, match=r"tuner cannot use the folder .*/file \(File exists\): give another one"):
        join("one", artifacts=tmp_path / "file")


def test_weights_that_cannot_be_read_are_named_and_hold_up_nothing(tmp_path: Path) -> None:
    lines, file, name = list[str](), tmp_path / "a-folder", str(uuid4())
    file.mkdir()
    weights = SharedWeights(tmp_path / "store", lines.append)
    weights.send(3, file, name)
    weights.leave(5.0, Interrupt())
    assert len(lines) == 1
    assert "Is a directory" in lines[0]
    file.rmdir()
    file.write_text("weights")
    weights.leave(5.0, Interrupt())
    assert (tmp_path / "store" / name).read_text() == "weights"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    (tmp_path / "weights.1.part").touch()  # of a session that was killed

    class Torn(BytesIO):
        def read(self, *_: Any) -> bytes:
            raise OSError(errno.ESTALE, "the drive is gone")

    with pytest.raises(OSError, match="the drive is gone"):
        store.write("weights", Torn())
    assert names_in(tmp_path) == set()
