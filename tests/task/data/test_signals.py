"""Recordings become windows; no recording has windows in two partitions; mistakes are one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.task.conftest import Load
from tuner.errors import TaskError
from tuner.task import Task, open_task
from tuner.task.partition import recording_holdout

BASE = {
    "model.factory": "m:build",
    "local.kind": "signals",
    "local.train": "data.npz#ann/monday",
    "local.val": "data.npz#ann/tuesday",
    "input.window": 10,
    "input.hop": 5,
}
ALONE = {"local.train": "data.npz", "local.val": None}
FOLDER = {"local.train": "rec", "local.val": None}


def session(labels: list[int], seed: int = 0, channels: int = 2, length: int = 25) -> dict[str, Any]:
    """Recordings of `length` samples, one a label: the channels have mean 0 and 10, deviation 1 and 2."""
    noise = np.random.default_rng(seed).normal(size=(length * len(labels), channels))
    signal = noise * np.arange(1, channels + 1) + 10 * np.arange(channels)
    return {"signal": signal, "label": np.array(labels), "start": np.arange(len(labels) + 1) * length}


def save(folder: Path, **sessions: dict[str, Any]) -> None:
    """Write ``data.npz``; a double underscore in a session's name stands for a slash."""
    arrays = {
        f"{name.replace('__', '/')}/{part}": value for name, parts in sessions.items() for part, value in parts.items()
    }
    np.savez(folder / "data.npz", **arrays)


@pytest.fixture
def load_signals(tmp_path: Path, load: Load) -> Load:
    """Ann recorded on two days, Bob on one; load a task over them."""
    save(tmp_path, ann__monday=session([0, 1]), ann__tuesday=session([1, 0], 1), bob__monday=session([0, 1] * 2, 2))
    return lambda changes=None: load(changes, BASE)


def names(task: Task) -> list[str]:
    return [task.local.train.name(index) for index in range(len(task.local.train))]


def test_a_session_is_cut_into_windows_of_its_recordings_alone(load_signals: Load, tmp_path: Path) -> None:
    task = load_signals()
    begins = [f"{number}]@{begin}" for number in (0, 1) for begin in (0, 5, 10, 15)]
    assert [name.rpartition("[")[2] for name in names(task)] == begins
    assert names(task)[5] == f"{tmp_path}/data.npz#ann/monday[1]@5"
    assert task.local.train.labels.tolist() == [0] * 4 + [1] * 4
    assert task.local.val.labels.tolist() == [1] * 4 + [0] * 4
    assert task.input_shape == (2, 10)
    window = task.local.train.load(5)
    assert window.dtype == np.float32
    np.testing.assert_allclose(window, session([0, 1])["signal"][30:40].T, rtol=1e-6)
    assert len({task.local.train.sample_id(index) for index in range(8)}) == 8


def test_statistics_come_from_the_training_windows_alone(load_signals: Load) -> None:
    task = load_signals()
    x = np.stack([task.local.train.load(index) for index in range(len(task.local.train))])
    np.testing.assert_allclose(task.input.mean, x.mean(axis=(0, 2)), rtol=1e-4)
    np.testing.assert_allclose(task.input.std, x.std(axis=(0, 2)), rtol=1e-4)
    out = task.batch(task.local.train, range(len(task.local.train)))
    np.testing.assert_allclose([out.mean(axis=(0, 2)), out.std(axis=(0, 2))], [[0, 0], [1, 1]], atol=1e-4)
    assert load_signals({"local.val": "data.npz#bob"}).input == task.input


def test_with_global_data_they_come_from_what_the_model_was_trained_on_unless_they_are_given(
    load_signals: Load,
) -> None:
    known = {"global.kind": "signals", "global.train": "data.npz#bob", "global.val": "data.npz#ann/tuesday"}
    task = load_signals(known)
    assert task.global_ is not None
    x = np.stack([task.global_.train.load(index) for index in range(len(task.global_.train))])
    np.testing.assert_allclose(task.input.mean, x.mean(axis=(0, 2)), rtol=1e-4)
    spec = load_signals({"input.mean": [1.0], "input.std": [2.0]}).input
    assert (spec.mean, spec.std) == ((1.0,), (2.0,))


def test_without_a_hop_windows_touch_and_without_a_window_recordings_stay_whole(load_signals: Load) -> None:
    assert len(load_signals({"input.hop": None}).local.train) == 4
    whole = load_signals({"input.hop": None, "input.window": None})
    assert (len(whole.local.train), whole.input_shape) == (2, (2, 25))


@pytest.mark.parametrize(("pattern", "windows"), [("#ann", 16), ("#*/monday", 24), ("#bob/monday", 16), ("", 32)])
def test_sessions_are_chosen_by_name(load_signals: Load, pattern: str, windows: int) -> None:
    task = load_signals({"local.train": f"data.npz{pattern}", "local.val": None})
    assert len(task.local.train) + len(task.local.val) == windows


def people(samples: Any) -> set[str]:
    return {samples.name(index).partition("#")[2].rpartition("[")[0] for index in range(len(samples))}


def test_a_missing_val_holds_out_whole_people_else_sessions_else_recordings(
    load_signals: Load, tmp_path: Path, load: Load
) -> None:
    local = load_signals(ALONE).local
    assert {name.partition("/")[0] for name in people(local.train)}.isdisjoint(
        name.partition("/")[0] for name in people(local.val)
    )
    local = load_signals({**ALONE, "local.train": "data.npz#ann"}).local
    assert len(people(local.train)) == len(people(local.val)) == 1
    assert people(local.train) != people(local.val)
    save(tmp_path, ann__monday=session([0, 1] * 5))
    local = load(ALONE, BASE).local
    recordings = [
        {side.name(index).partition("@")[0] for index in range(len(side))} for side in (local.train, local.val)
    ]
    assert recordings[0].isdisjoint(recordings[1])
    assert [len(side) for side in recordings] == [8, 2]
    assert set(local.val.labels.tolist()) == {0, 1}


def test_no_label_is_held_out_that_the_rest_lacks() -> None:
    labels = np.array([0, 0, 1, 1, 0, 2])
    rest, held_out = recording_holdout(labels, np.array([0, 0, 1, 1, 2, 3]), ("a/1", "a/1", "b/1", "c/1"))
    assert set(labels[rest]) == {0, 1, 2}
    assert len(held_out) == 1 or set(labels[held_out]) == {0}
    rest, held_out = recording_holdout(np.array([0, 1]), np.array([0, 1]), ("", ""))
    assert (len(rest), len(held_out)) == (2, 0)


def test_no_label_is_held_out_that_only_a_later_clip_of_a_recording_has() -> None:
    recordings = np.repeat(np.arange(5), 2)
    labels = np.zeros((10, 3), np.float32)
    labels[:, 0] = 1
    labels[[5, 9], [1, 2]] = 1  # in the second clip of a recording alone
    single = (labels @ np.arange(3)).astype(np.int64)
    for seed in range(10):
        for given in (labels, single):
            rest, held_out = recording_holdout(given, recordings, [""] * 5, seed=seed)
            assert set(recordings[held_out]) <= {0, 1, 3}
            assert len(held_out) in {0, 2}
            assert len(rest) + len(held_out) == 10
    assert len(recording_holdout(single, recordings, [""] * 5)[1]) == 2


def test_arrays_of_an_npz_are_recordings_too(tmp_path: Path, load: Load) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3, 20))
    whose = np.array(["ann", "ann", "bob", "bob", "cy", "cy"])
    np.savez(tmp_path / "data.npz", x_train=x, y_train=[0, 1] * 3, session_train=whose, classes=["rest", "fist"])
    task = load(ALONE, BASE)
    assert task.labels == ("rest", "fist")
    sides = (task.local.train, task.local.val)
    assert [len(side) for side in sides] == [12, 6]
    seen = [{str(whose[int(side.name(i).split("[")[1][0])]) for i in range(len(side))} for side in sides]
    assert seen[0] | seen[1] == {"ann", "bob", "cy"}
    assert seen[0].isdisjoint(seen[1])


def test_files_are_recordings_in_class_folders_or_in_a_manifest(tmp_path: Path, load: Load) -> None:
    lines = ["path,label,session"]
    for number in range(4):
        file = tmp_path / "rec" / "ab"[number % 2] / f"{number}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, session([0], number)["signal"].T)
        lines.append(f"rec/{file.parent.name}/{file.name},{file.parent.name},day{number // 2}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    task = load(FOLDER, BASE)
    assert task.labels == ("a", "b")
    assert [len(task.local.train), len(task.local.val)] == [8, 8]
    local = load({**FOLDER, "local.train": "list.csv"}, BASE).local
    days = [{Path(side.name(i).partition("@")[0]).stem for i in range(len(side))} for side in (local.train, local.val)]
    assert sorted(map(sorted, days)) == [["0", "1"], ["2", "3"]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input.window": 26},
            r"monday\[0\]: the recording has 25 time steps, fewer than input\.window = 26: remove the recording or",
        ),
        ({"input.window": None}, r"input\.hop = 5 requires input\.window"),
        ({"input.size": 8}, r"input\.size = 8 does not apply to kind 'signals': give input\.window"),
        ({"local.train": "data.npz#anne"}, r"no session 'anne' \(did you mean 'ann'\?\); there are ann/monday, "),
        ({"local.train": "data.npz#ann"}, r"is both train and val"),
        ({"local.train": "gone.npz#ann"}, r"gone\.npz: no such file or folder"),
        ({"augment.ops": ["flip"]}, r"augment\.ops: a signal \[C, T\] can be shifted in time, not changed by flip"),
        ({"augment.ops": ["noize"]}, r"no augmentation 'noize' \(did you mean 'noise'\?\)"),
    ],
)
def test_a_mistake_in_the_task_file_is_reported_in_one_line(
    load_signals: Load, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        load_signals(changes)
    assert "\n" not in str(caught.value)


def damaged(value: float) -> dict[str, Any]:
    recordings = session([0, 1])
    recordings["signal"][:, 1] = value
    return recordings


TWO = session([0, 1])


@pytest.mark.parametrize(
    ("monday", "tuesday", "message"),
    [
        (session([0, 1], channels=3), TWO, r"local\.val gives windows of \[2, 10\], local\.train of \[3, 10\]"),
        (damaged(7.0), TWO, r"local\.train: channel 1 is 7 throughout.*leave the channel out, or give input"),
        (damaged(np.nan), TWO, r"monday\[0\]: a recording must hold finite numbers, got NaN or infinity"),
        (session([0, 0]), session([0, 0]), r"the only class is '0': a single-label task needs at least two"),
        ({**TWO, "start": np.array([0, 25])}, TWO, r"2 labels need 3 starts, got \[2\]"),
        ({**TWO, "start": np.array([0, 60, 50])}, TWO, r"starts must grow from 0 up to .*50"),
    ],
)
def test_a_recording_that_cannot_be_used_is_reported_in_one_line(
    tmp_path: Path, load: Load, monday: dict[str, Any], tuesday: dict[str, Any], message: str
) -> None:
    save(tmp_path, ann__monday=monday, ann__tuesday=tuesday)
    with pytest.raises(TaskError, match=message) as caught:
        load(None, BASE)
    assert "\n" not in str(caught.value)


def test_recordings_of_one_entry_need_the_same_channels_and_without_a_window_the_same_length(
    tmp_path: Path, load: Load
) -> None:
    save(tmp_path, ann__monday=session([0, 1]), bob__monday=session([0, 1], channels=3))
    with pytest.raises(TaskError, match=r"bob/monday\[0\] has 3 channels, .*ann/monday\[0\] has 2: recordings of one"):
        load(ALONE, BASE)
    save(tmp_path, ann__monday=session([0, 1]), bob__monday=session([0, 1], length=30))
    with pytest.raises(TaskError, match=r"bob/monday\[0\] has 30 samples, .* has 25: give input\.window"):
        load({**ALONE, "input.window": None, "input.hop": None}, BASE)


def test_files_that_hold_no_recording_are_reported(tmp_path: Path, load: Load) -> None:
    for label in "ab":
        (tmp_path / "rec" / label).mkdir(parents=True)
        np.save(tmp_path / "rec" / label / "1.npy", np.zeros((2, 3, 4)))
    with pytest.raises(TaskError, match=r"a recording must be numbers \[channels, time\], got float64 \[2, 3, 4\]"):
        load(FOLDER, BASE)
    (tmp_path / "rec/a/1.npy").write_bytes(b"nothing")
    with pytest.raises(TaskError, match=r"1\.npy: cannot be read as \.npy"):
        load(FOLDER, BASE)


def test_a_task_of_signals_is_loaded_from_a_file_by_name(load_signals: Load, tmp_path: Path) -> None:
    first = load_signals().fingerprint()
    assert open_task(str(tmp_path / "task.toml")).fingerprint() == first
    assert load_signals({"input.hop": 3}).fingerprint() != first
