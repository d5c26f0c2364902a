"""Photos that were taken together stay together: by EXIF, by name, by manifest; EXIF is written by Pillow."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from tests.task.conftest import Load
from tuner.errors import TaskError
from tuner.task.copies import shared_samples
from tuner.task.data.sessions import EXIF, session_of
from tuner.task.info import outline
from tuner.task.partition import recording_folds, session_holdout

CAMERA, TAKEN, DIGITISED, CHANGED, ORIENTATION = 0x8769, 36867, 36868, 306, 0x0112
MINUTE = "2023:05:01 10:11"


def photo(path: Path, colour: int, camera: Mapping[int, str] | None = None) -> Path:
    exif = Image.Exif()
    exif[ORIENTATION] = 1
    for tag, value in (camera or {}).items():
        (exif.get_ifd(CAMERA) if tag in {TAKEN, DIGITISED} else exif)[tag] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = TiffImagePlugin.ImageFileDirectory_v2()  # Pillow writes no such table of an Exif into a TIFF
    if camera:
        tables[CAMERA] = dict(camera)
    written: dict[str, Any] = {"tiffinfo": tables} if path.suffix == ".tif" else {"exif": exif.tobytes()}
    Image.new("RGB", (8, 8), (colour % 256, colour // 256, 7)).save(path, **written)
    return path


TIMES: list[tuple[str, Mapping[int, str], str]] = [
    ("jpg", {TAKEN: f"{MINUTE}:12"}, MINUTE),
    ("jpg", {TAKEN: f"{MINUTE}:59", DIGITISED: "2024:01:01 00:00:00"}, MINUTE),
    ("jpg", {DIGITISED: f"{MINUTE}:12"}, MINUTE),
    ("jpg", {TAKEN: f"{MINUTE}:12.345"}, MINUTE),
    ("png", {TAKEN: f"{MINUTE}:12"}, MINUTE),
    ("webp", {TAKEN: f"{MINUTE}:12"}, MINUTE),
    ("tif", {TAKEN: f"{MINUTE}:12"}, MINUTE),
    ("avif", {TAKEN: f"{MINUTE}:12"}, MINUTE),
    ("jpg", {CHANGED: f"{MINUTE}:12"}, ""),  # programs write it when they save
    ("jpg", {TAKEN: "0000:00:00 00:00:00"}, ""),
    ("jpg", {TAKEN: "    :  :     :  :  "}, ""),
    ("jpg", {TAKEN: "2023-05-01"}, ""),
    ("jpg", {TAKEN: ""}, ""),
    ("jpg", {}, ""),
]


@pytest.mark.parametrize(("ending", "camera", "session"), TIMES)
def test_the_minute_of_a_photo_is_its_session(
    tmp_path: Path, ending: str, camera: Mapping[int, str], session: str
) -> None:
    path = photo(tmp_path / f"1.{ending}", 5, camera)
    assert session_of(path, EXIF) == (session or str(path))


def test_a_damaged_header_has_no_minute(tmp_path: Path) -> None:
    content = io.BytesIO()
    exif = Image.Exif()
    exif.get_ifd(CAMERA)[TAKEN] = f"{MINUTE}:12"
    Image.new("RGB", (8, 8)).save(content, "JPEG", exif=exif)
    whole = content.getvalue()
    for end in range(0, len(whole), 37):
        (tmp_path / "1.jpg").write_bytes(whole[:end])
        assert session_of(tmp_path / "1.jpg", EXIF) in {MINUTE, str(tmp_path / "1.jpg")}


@pytest.mark.parametrize(
    ("name", "pattern", "session"),
    [
        ("IMG_0001_BURST20230501101112_COVER.jpg", r"BURST\d+", "BURST20230501101112"),
        ("00100lPORTRAIT_00100_BURST2023.jpg", r"BURST\d+", "BURST2023"),
        ("anna-walk-3.jpg", r"^[^-]+-[^-]+", "anna-walk"),
        ("20230501_101112(1).jpg", r"^\d{8}_\d{4}", "20230501_1011"),
        ("x.jpg", None, "PATH"),
        ("x.jpg", r"BURST\d+", r"input\.recording = 'BURST\\\\d\+' does not match this file's name"),
        ("x.jpg", r"\d*", r"matches nothing of this file's name"),
        ("x.jpg", r"(", r"input\.recording must be a regular expression, got '\('"),
    ],
)
def test_a_pattern_in_the_name_is_the_session(tmp_path: Path, name: str, pattern: str | None, session: str) -> None:
    path = tmp_path / name
    if session.startswith(("input", "matches")):
        with pytest.raises(TaskError, match=session):
            session_of(path, pattern)
    else:
        assert session_of(path, pattern) == (str(path) if session == "PATH" else session)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [1, 3, 9], ids=lambda most: f"sessions of up to {most}")
def test_no_session_is_divided_and_about_a_fifth_is_held_out(most: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    sessions = np.repeat(np.arange(60), generator.integers(1, most + 1, 60))
    labels = (sessions % 3).astype(np.int64)
    rest, held = session_holdout(labels, sessions, seed=seed)
    assert sorted([*rest, *held]) == list(range(len(labels)))
    assert not {*sessions[rest]} & {*sessions[held]}
    for name in range(3):
        count, out = np.sum(labels == name), np.sum(labels[held] == name)
        assert 0.2 * count <= out < 0.2 * count + most
    again = session_holdout(labels, sessions, seed=seed)
    assert np.array_equal(again[1], held)


def test_a_class_of_one_session_is_divided_photo_by_photo() -> None:
    labels, sessions = np.repeat([0, 1], 10), np.array([*np.zeros(10, int), *np.arange(1, 11)])
    rest, held = session_holdout(labels, sessions)
    assert [np.sum(labels[held] == name) for name in (0, 1)] == [2, 2]
    assert len(rest) == 16


def test_a_fold_holds_whole_sessions() -> None:
    sessions = np.repeat(np.arange(20), 3)
    folds = recording_folds((sessions % 2).astype(np.int64), sessions, 5)
    assert all(len({*folds[sessions == one]}) == 1 for one in range(20))
    assert np.bincount(folds)[1:].tolist() == [12] * 5


@pytest.mark.parametrize("way", ["exif", "a pattern", "a manifest"])
def test_a_task_holds_out_whole_sessions_by_any_way_to_name_them(tmp_path: Path, load: Load, way: str) -> None:
    lines, minutes = ["path,label,session"], dict[str, int]()
    for number in range(48):
        burst = number // 3
        name = ("cat", "dog")[burst % 2]
        path = photo(
            tmp_path / "p" / name / f"b{burst}-{number}.jpg", 20 * number, {TAKEN: f"2023:05:01 10:{burst:02}:00"}
        )
        minutes[str(path)] = burst
        lines.append(f"p/{name}/{path.name},{name},burst {burst}")
    (tmp_path / "m.csv").write_text("\n".join(lines))
    pattern = {"exif": "exif", "a pattern": r"^b\d+", "a manifest": None}[way]
    changes = {"local.train": "m.csv" if way == "a manifest" else "p", "local.val": None, "input.recording": pattern}
    task = load(changes)
    sides = [{minutes[part.name(at)] for at in range(len(part))} for part in (task.local.train, task.local.val)]
    assert not sides[0] & sides[1]
    assert (len(task.local.train), len(task.local.val)) == (36, 12)
    assert outline(task).most_folds == 6  # sessions of the smaller class
    assert not list(shared_samples(task))


def test_a_session_on_both_sides_of_two_entries_gets_a_warning(tmp_path: Path, load: Load) -> None:
    for number in range(12):
        part, name = ("l/train", "l/val")[number % 3 == 0], ("cat", "dog")[number % 2]
        photo(tmp_path / part / name / f"{number}.jpg", 20 * number, {TAKEN: f"2023:05:01 10:{number // 6}1:00"})
    (warning,) = shared_samples(load({"input.recording": "exif"}))
    assert warning.startswith(
        "warning: 4 of the 4 samples of local.val were taken in the same session as samples of local.train"
    )


@pytest.mark.parametrize(
    ("cats", "dogs"),
    [([0, 0, 0, 1], [0, 1, 1, 1]), ([0] * 100 + [1], [0] * 100 + [2]), ([0] * 9, [0] * 9)],
    ids=["sessions shared by classes", "one session of nearly all", "one session of all"],
)
def test_a_class_whose_sessions_cannot_be_kept_whole_is_held_out_photo_by_photo(
    cats: list[int], dogs: list[int]
) -> None:
    labels = np.array([0] * len(cats) + [1] * len(dogs))
    _, held = session_holdout(labels, np.array([*cats, *dogs]))
    for name, sessions in enumerate((cats, dogs)):
        assert np.sum(labels[held] == name) == max(1, round(len(sessions) / 5))


def test_no_label_is_held_out_that_the_rest_would_lack() -> None:
    generator = np.random.default_rng(0)
    for _ in range(100):
        labels = (generator.random((20, 5)) < 0.15).astype(np.float32)
        rest, _ = session_holdout(labels, generator.integers(0, 8, 20))
        assert ((labels[rest].sum(axis=0) > 0) == (labels.sum(axis=0) > 0)).all()


@pytest.mark.parametrize("seed", range(10))
def test_folds_keep_sessions_that_classes_share_and_every_class_is_in_two_folds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sessions = np.repeat(np.arange(6), 6)
    labels = np.where((sessions < 2) & (generator.permutation(36) % 2 == 0), 1, 0)
    folds = recording_folds(labels, sessions, 2)
    of_sessions = [{*folds[sessions == one]} for one in range(6)]
    assert sum(len(here) > 1 for here in of_sessions) == 0
    assert {*folds[labels == 1]} == {*folds[labels == 0]} == {1, 2}
