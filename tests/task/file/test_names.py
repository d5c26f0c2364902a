"""Names as people and systems write them: Unicode's two forms, and bytes, are the same class."""

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.task.conftest import GLOBAL, Load
from tuner.errors import TaskError
from tuner.task.info import outline

WORDS = ["café", "Müller", "Ärger", "ñandú", "가방", "が", "Å", "naïve élan"]
PLAIN = ["cat", "кот", "猫", "🐈", "ø"]
ARRAYS: dict[str, Any] = {"local.kind": "arrays", "local.val": None} | {
    f"input.{key}": None for key in ("size", "mean", "std")
}


def photos(folder: Path, *names: str, first: int = 0) -> None:
    for number, name in enumerate(names):
        for copy in range(4):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number, copy, first)).save(folder / name / f"{copy}.png")


@pytest.mark.parametrize("word", [*WORDS, *PLAIN])
def test_a_class_in_either_form_is_one_class(tmp_path: Path, load: Load, word: str) -> None:
    composed, separate = (unicodedata.normalize(form, word) for form in ("NFC", "NFD"))
    assert (composed != separate) == (word in WORDS)
    photos(tmp_path / "l/train", separate, "zebra")
    photos(tmp_path / "l/val", composed, "zebra", first=9)
    task = load()
    assert task.labels == tuple(sorted([composed, "zebra"]))
    assert len(task.local.val) == 8
    assert any("NFD" in line and composed in line for line in task.findings) == (word in WORDS)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("place", ["both in one folder", "manifest", "classes file", "labels.new", "labels.map", "npz"])
def test_every_place_that_names_a_class_knows_both_forms(tmp_path: Path, load: Load, place: str, word: str) -> None:
    composed, separate = (unicodedata.normalize(form, word) for form in ("NFC", "NFD"))
    photos(tmp_path / "l/train", composed, "zebra")
    photos(tmp_path / "l/val", composed, "zebra", first=9)
    changes: dict[str, Any] = {}
    if place == "both in one folder":
        photos(tmp_path / "l/train", separate, first=3)
    elif place == "manifest":
        (tmp_path / "m.csv").write_text(f"path,label\nl/val/{composed}/0.png,{separate}\n", encoding="utf-8")
        changes = {"local.val": "m.csv"}
    elif place == "classes file":
        photos(tmp_path / "g/train", separate, "owl", first=5)
        photos(tmp_path / "g/val", composed, "owl", first=7)
        (tmp_path / "classes.tsv").write_text(f"class\tindex\n{separate}\t4\nowl\t1\n", encoding="utf-8")
        changes = {**GLOBAL, "global.classes": "classes.tsv"}
    elif place.startswith("labels"):
        photos(tmp_path / "g/train", "dog", "owl", first=5)
        photos(tmp_path / "g/val", "dog", "owl", first=7)
        changes = {**GLOBAL, place: [separate, "zebra"] if place == "labels.new" else {separate: ["dog"]}}
        if place == "labels.map":
            changes["labels.new"] = ["zebra"]
    else:
        x, y = np.zeros((4, 1, 4, 4), np.float32), np.arange(4) % 2
        np.savez(tmp_path / "d.npz", x=x, y=y, classes=np.array([separate, "zebra"]))
        changes = {**ARRAYS, "local.train": "d.npz"}
    task = load(changes)
    local = [task.labels[row] for row in task.local_labels]
    assert sorted(local) == sorted(["dog" if place == "labels.map" else composed, "zebra"])
    if place == "classes file":
        assert dict(zip(task.labels, task.head_rows, strict=False))[composed] == 4


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (np.array([b"cat", b"dog"]), ("cat", "dog")),
        (np.array(["café".encode(), b"dog"]), ("café", "dog")),
        (np.array(["cat", "dog"]), ("cat", "dog")),
        (np.array([b"cat", b"c\xe4t"]), "classes must be text, or bytes in UTF-8"),
        (np.array([7, 9]), ("7", "9")),
        (np.array([["cat", "dog"]]), r"classes must be a list of names, got .* \[1, 2\]"),
        (np.array([b"cat", b"cat"]), "2 classes need 2 different names"),
        (np.array([unicodedata.normalize("NFD", "é"), "é"]), "2 classes need 2 different names"),
    ],
    ids=str,
)
def test_names_in_an_array_are_text(
    tmp_path: Path, load: Load, names: np.ndarray, labels: tuple[str, ...] | str
) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 1, 4, 4), np.float32), y=np.arange(4) % 2, classes=names)
    changes = {**ARRAYS, "local.train": "d.npz"}
    if isinstance(labels, tuple):
        assert load(changes).labels == labels
    else:
        with pytest.raises(TaskError, match=labels) as caught:
            load(changes)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["S", "U"])
def test_sessions_in_an_array_may_be_bytes(tmp_path: Path, load: Load, kind: str) -> None:
    people = np.array(["anna/1", "anna/1", "bob/1", "bob/1"]).astype(kind)
    x = np.random.default_rng(0).normal(size=(4, 2, 20)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(4) % 2, session_train=people)
    task = load({**ARRAYS, "local.kind": "signals", "local.train": "d.npz", "input.window": 10})
    assert (len(task.local.train), len(task.local.val)) == (4, 4)
    rows = [{part.whole(at) for at in range(4)} for part in (task.local.train, task.local.val)]
    assert sorted(map(len, rows)) == [2, 2]
    first = {f"x_train[{row}]" for row in (0, 1)}  # Anna's
    assert any(all(name.endswith(tuple(first)) for name in side) for side in rows)


@pytest.mark.parametrize(("recordings", "folds"), [(6, 3), (2, 0)])
def test_windows_are_folded_by_recording_where_each_class_has_several(
    tmp_path: Path, load: Load, recordings: int, folds: int
) -> None:
    x = np.random.default_rng(0).normal(size=(recordings, 2, 40)).astype(np.float32)
    y = np.arange(recordings) % 2
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_val=x, y_val=y)
    parts = {"local.train": "d.npz", "local.val": "d.npz"}
    told = outline(load({**ARRAYS, **parts, "local.kind": "signals", "input.window": 10}))
    assert told.info.local_val == 4 * recordings
    assert told.most_folds == folds, "those of one recording are too much alike"
    assert told.fold_noun == ("recordings" if folds else told.info.noun)
