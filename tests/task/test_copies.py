"""Photos that are trained on and scored: the same files by any path are refused, copies are counted in a warning."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tuner.errors import TaskError
from tuner.task.copies import shared_samples
from tuner.task.file.toml import task_from_values

MODEL = {"factory": "net.py:build"}
INPUT = {"size": 8, "mean": [0.5], "std": [0.5]}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder `photos` of two classes of six photos each."""
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = draw.integers(0, 256, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "net.py").write_text("def build(): ...")
    return tmp_path / "photos"


def found(folder: Path, val: str) -> list[str]:
    local = {"kind": "images", "train": "photos", "val": val}
    values = {"model": MODEL, "local": local, "input": INPUT}
    return list(shared_samples(task_from_values(values, folder.parent / "task.toml")))


@pytest.mark.parametrize("way", ["another path", "a link to the folder", "links to the files", "a manifest"])
def test_the_same_files_are_refused_by_any_way_to_them(photos: Path, way: str) -> None:
    val = f"../{photos.parent.name}/photos"
    if way == "a link to the folder":
        (photos.parent / (val := "val")).symlink_to(photos)
    if way == "links to the files":
        shutil.copytree(photos, photos.parent / (val := "val"), copy_function=os.link)
    if way == "a manifest":
        lines = [f"photos/{file.relative_to(photos)},{file.parent.name}" for file in photos.rglob("*.png")]
        (photos.parent / (val := "val.csv")).write_text("\n".join(["path,label", *lines]))
    with pytest.raises(TaskError, match=r"12 of the 12 samples of local\.val are the same as samples of local\.train"):
        found(photos, val)


def test_copies_are_counted_in_a_warning(photos: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        (photos.parent / "val" / name).mkdir(parents=True)
        shutil.copy(photos / name / "0.png", photos.parent / "val" / name / "copy.png")
        Image.new("RGB", (8, 8), (number, 0, 0)).save(photos.parent / "val" / name / "own.png")
    (warning,) = found(photos, "val")
    assert warning.startswith("warning: 2 of the 4 samples of local.val are also in local.train")
    shutil.rmtree(photos.parent / "val" / "dog")
    (photos.parent / "val" / "cat" / "copy.png").unlink()
    assert found(photos, "val") == []


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("local.train", "local.val", True),
        ("local.train", "local.test", True),
        ("local.val", "local.test", True),
        ("local.train", "global.val", True),
        ("global.train", "local.val", True),
        ("global.train", "global.val", True),
        ("global.val", "local.test", True),
        ("local.train", "global.train", False),  # both are learned from
        ("local.val", "global.val", False),
    ],
)
def test_a_copy_that_makes_a_score_too_good_is_counted(tmp_path: Path, first: str, second: str, *, said: bool) -> None:
    (tmp_path / "net.py").write_text("def build(): ...")
    parts = ["local.train", "local.val", "local.test", "global.train", "global.val"]
    values: dict[str, Any] = {"model": MODEL, "input": INPUT, "local": {"kind": "images"}, "global": {"kind": "images"}}
    draw = np.random.default_rng(0)
    for part in parts:
        section, key = part.split(".")
        values[section][key] = part
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(2):
                Image.fromarray(draw.integers(0, 256, (8, 8, 3), np.uint8)).save(
                    tmp_path / part / name / f"{number}.bmp"
                )
    shutil.copy(tmp_path / first / "cat/0.bmp", tmp_path / second / "cat/a copy.bmp")
    lines = list(shared_samples(task_from_values(values, tmp_path / "task.toml")))
    assert len(lines) == said
    assert all(line.startswith(f"warning: 1 of the 5 samples of {second} is also in {first}, ") for line in lines)


def test_a_sample_under_two_labels_is_named(photos: Path) -> None:
    shutil.copy(photos / "cat/0.png", photos / "dog/again.png")
    values = {"model": MODEL, "local": {"kind": "images", "train": "photos"}, "input": INPUT}
    lines = list(shared_samples(task_from_values(values, photos.parent / "task.toml")))
    assert any(
        "local.train has 1 sample under two labels; remove the wrong one of each" in line for line in lines
    ) or any(
        "of local.val is also in local.train" in line
        for line in lines  # where one of the two was held out
    )
