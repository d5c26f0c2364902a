"""A shared study from elsewhere: exported with the weights that its workers share, and in the dashboard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.artifacts import get_all_artifact_meta

from tuner.bundle.format import WEIGHTS
from tuner.commands.dashboard import followed
from tuner.commands.reading import run_to_export
from tuner.errors import RunError, UsageError
from tuner.results.config import Budget
from tuner.search.shared.weights import SharedWeights

Join = Callable[..., Any]


def train(worker: Any) -> None:
    """Carry a trial through, with weights that hold its number."""
    trial = worker.begin()
    record = worker.study._try(trial)
    file = worker.study._weights(trial.number)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"weights {trial.number}")
    worker.study._keep(trial, record)


def test_weights_of_the_front_are_where_all_can_read_them(join: Join, address: str, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    one, other = (join(name, Budget(trials=8), artifacts=shared) for name in ("one", "other"))
    for _ in range(4):
        train(one)
        train(other)
    with run_to_export(address, "0", shared) as run:
        assert (run.folder / "trials" / "0" / WEIGHTS).read_text() == "weights 0"
    for trial in run.front:
        with run_to_export(address, str(trial), shared) as again:
            assert (again.folder / "trials" / str(trial) / WEIGHTS).read_text() == f"weights {trial}"
    assert not run.folder.exists()
    assert shared.stat().st_mode & 0o077 == 0
    with pytest.raises(UsageError, match="a study is exported with --artifacts"), run_to_export(address, "0", None):
        pass
    with (
        pytest.raises(RunError, match=r"the weights of trial 0 are not in .*: give --artifacts as the workers have it"),
        run_to_export(address, "0", tmp_path / "elsewhere"),
    ):
        pass


def test_weights_that_nobody_needs_are_removed(join: Join, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    one = join("one", artifacts=folder)
    weights = one.queue._place.weights
    assert isinstance(weights, SharedWeights)
    trial = one.begin()
    file = tmp_path / WEIGHTS
    file.write_text("weights")
    weights.name(trial, file)
    assert list(folder.iterdir()) == []
    weights.send(trial.number, file)
    (meta,) = get_all_artifact_meta(
        study_or_trial=one.queue.study.trials[trial.number], storage=one.queue.study._storage
    )
    assert (folder / meta.artifact_id).read_text() == "weights"
    weights.drop({trial.number + 1})
    assert (folder / meta.artifact_id).exists()
    weights.drop({trial.number})
    assert list(folder.iterdir()) == []


def test_weights_that_a_worker_kept_for_itself_are_named(join: Join, address: str, tmp_path: Path) -> None:
    train(join("one"))
    with (
        pytest.raises(RunError, match=r"the weights of trial 0 are with the worker that trained it"),
        run_to_export(address, "0", tmp_path),
    ):
        pass


def test_no_trial_is_lost_where_weights_cannot_be_sent_for_a_while(
    join: Join, address: str, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.search.shared.weights.PAUSE", 0.0)
    place, away = tmp_path / "shared", tmp_path / "away"
    one = join("one", artifacts=place, listener=heard)
    place.rename(away)
    for _ in range(2):
        train(one)
    assert [record.trial for record in one.study.records] == [0, 1]
    (line,) = (line for line in heard.lines if line.startswith("warning:"))
    assert line == (
        f"warning: {place} cannot be used (FileNotFoundError: [Errno 2] No such file or directory: "
        f"'{place / sent_name(one, 0)}.part'): see that it is there; until then, weights stay in this worker's folder"
    )
    away.rename(place)
    for _ in range(2):
        train(one)
    assert f"{place} takes weights again" in heard.lines
    for trial in one.study.front():
        with run_to_export(address, str(trial), place) as run:
            assert (run.folder / "trials" / str(trial) / WEIGHTS).read_text() == f"weights {trial}"


def sent_name(worker: Any, trial: int) -> str:
    (meta,) = get_all_artifact_meta(
        study_or_trial=worker.queue.study.trials[trial], storage=worker.queue.study._storage
    )
    return meta.artifact_id


def test_weights_that_an_earlier_session_could_not_send_are_sent_by_the_next(
    join: Join, address: str, tmp_path: Path, heard: Any
) -> None:
    place, away = tmp_path / "shared", tmp_path / "away"
    one = join("one", artifacts=place, listener=heard)
    train(one)
    sent = set(place.iterdir())
    place.rename(away)
    (one.folder / "trials" / "0" / WEIGHTS).write_text("weights 0, and what was not sent")
    train(one)
    one.shared.leave()
    assert heard.lines[-1] == (
        f"warning: the weights of trial 1 were not sent to {place}, and are in this worker's folder: continue with "
        "--resume to send them"
    )
    away.rename(place)
    with pytest.raises(RunError, match=r"the weights of trial 1 are not in"), run_to_export(address, "1", place):
        pass
    join("one", artifacts=place)
    with run_to_export(address, "1", place) as run:
        assert (run.folder / "trials" / "1" / WEIGHTS).read_text() == "weights 1"
    assert {file.name for file in sent} < {file.name for file in place.iterdir()}
    with run_to_export(address, "0", place) as run:
        assert (run.folder / "trials" / "0" / WEIGHTS).read_text() == "weights 0"  # it was there: not sent again


def test_weights_that_a_dead_worker_named_and_never_sent_do_not_hide_those_of_the_next(
    join: Join, address: str, tmp_path: Path
) -> None:
    place = tmp_path / "shared"
    dead, other = join("dead", artifacts=place), join("other", artifacts=place, grace=1.0)
    trial = dead.begin()
    file = tmp_path / WEIGHTS
    file.write_text("weights that nobody has")
    dead.queue._place.weights.name(trial, file)
    assert other.retired() == [trial.number]
    for _ in range(6):
        train(other)
    (again,) = (one.number for one in other.queue.study.trials if one.system_attrs.get("failed_trial") == trial.number)
    named = get_all_artifact_meta(study_or_trial=other.queue.study.trials[again], storage=other.queue.study._storage)
    assert len(named) == 2
    with run_to_export(address, str(again), place) as run:
        assert (run.folder / "trials" / str(again) / WEIGHTS).read_text() == f"weights {again}"


def test_a_store_that_does_not_answer_is_not_asked_after_each_trial(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "shared"
    one = join("one", artifacts=place)
    asked = list[str]()

    def write(name: str, _content: object) -> None:
        asked.append(name)
        raise RunError("away")

    monkeypatch.setattr(one.queue._place.weights._store, "write", write)
    for _ in range(3):
        train(one)
    assert len(asked) == 1
    assert len(one.study.records) == 3


def test_the_dashboard_follows_a_study(join: Join, address: str) -> None:
    one = join("one")
    with followed(address) as source:
        before = source.stamp()
        one.step()
        assert source.stamp() != before
        assert len(source.open().records) == 1
