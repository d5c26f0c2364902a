"""Files that cannot be read: all of them are named before anything trains, or left out where the task says so."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.task.conftest import GLOBAL, Load, Write, draw
from tuner.errors import TaskError
from tuner.task import open_task
from tuner.task.data import readable
from tuner.task.data.images import check_image
from tuner.task.data.readable import FILE, forget_readable
from tuner.task.inputs import images as image_kind

SKIP = {"input.skip_unreadable": True}


@pytest.fixture
def damaged(images: Path) -> Path:
    """`images` with three bad files, in three partitions."""
    whole = (images / "l/train/dog/0.png").read_bytes()
    (images / "l/train/dog/0.png").write_bytes(whole[:-20])
    (images / "l/val/hat/1.png").write_text("not pixels")
    (images / "g/train/cat/2.png").write_bytes(b"")
    return images


def test_all_bad_files_are_named_before_anything_trains(damaged: Path, load: Load) -> None:
    with pytest.raises(TaskError) as caught:
        load(GLOBAL)
    message = str(caught.value)
    assert message.startswith(f"{damaged}/task.toml: 3 files cannot be used: {damaged}/l/train/dog/0.png: not an image")
    assert f"; {damaged}/l/val/hat/1.png, {damaged}/g/train/cat/2.png: not an image" in message  # for the same reason
    assert message.endswith("; replace or remove them, or set [input] skip_unreadable = true")
    assert "\n" not in message


def test_a_bad_file_costs_itself_where_the_task_says_so(damaged: Path, load: Load) -> None:
    task = load({**GLOBAL, **SKIP})
    assert task.global_ is not None
    assert [len(part) for part in (task.local.train, task.local.val, task.global_.train)] == [7, 7, 7]
    assert [line.partition(": ")[0] for line in task.skipped] == [
        str(damaged / name) for name in ("l/train/dog/0.png", "l/val/hat/1.png", "g/train/cat/2.png")
    ]
    for index, label in enumerate(task.local.train.labels):  # the labels are still those of their files
        assert task.labels[label] == Path(task.local.train.name(index)).parent.name
    unlabelled = load({**GLOBAL, **SKIP, "local.labels": "none"})
    assert (len(unlabelled.local.train), len(unlabelled.skipped)) == (7, 3)


def test_many_bad_files_are_counted_and_an_entry_of_nothing_else_is_an_error(images: Path, load: Load) -> None:
    for file in images.glob("l/*/*/[0-2].png"):
        file.write_text("not pixels")
    with pytest.raises(
        TaskError, match=r"12 files cannot be used: .*0\.png, .*1\.png and 10 more: not an image[^;]*; repl"
    ):
        load()
    for file in images.glob("l/val/*/*.png"):
        file.write_text("not pixels")
    with pytest.raises(TaskError, match=r"l/val: 14 files cannot be used"):
        load(SKIP)


def test_who_waits_hears_how_many_files_were_looked_at(
    images: Path, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, int]] = []
    monkeypatch.setattr(readable, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(readable.FileCheck, "hear", staticmethod(lambda *counts: heard.append(counts)))
    load(GLOBAL)
    assert len(heard) == 32
    assert all(1 <= done <= of for done, of in heard)


def test_a_file_is_looked_at_once_for_its_content(
    images: Path, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def look(path: Path, spec: Any) -> None:
        looks.append(path)
        check_image(path, spec)

    monkeypatch.setattr(image_kind, "check_image", look)
    load(GLOBAL)
    assert len(looks) == len(set(looks)) == 32
    assert (tmp_path / "cache" / FILE).stat().st_mode & 0o777 == 0o600
    load(GLOBAL)
    assert len(looks) == 32
    changed = draw(images / "l/train/dog/0.png", (200, 0, 0))
    load(GLOBAL)
    assert looks[32:] == [changed]
    load({**GLOBAL, "input.resize": 7})  # too long an image for one size may fit another
    assert len(looks) == 33 + 32
    forget_readable()
    load(GLOBAL)
    assert len(looks) == 65 + 32


def test_a_file_that_was_readable_is_looked_at_again_when_it_changes(images: Path, load: Load) -> None:
    load()
    file = images / "l/train/dog/0.png"
    status = file.stat()
    file.write_bytes(b"x" * status.st_size)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as `cp -p` does
    with pytest.raises(TaskError, match="1 file cannot be used"):
        load()


def test_without_a_look_no_image_is_opened(damaged: Path, write: Write, tmp_path: Path) -> None:
    task = open_task(str(write(GLOBAL)), look=False)
    assert len(task.local.train) == 8
    assert not (tmp_path / "cache").exists()


def test_without_a_cache_files_are_looked_at_each_time(
    images: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(images / "weights.pth"))
    assert len(load().local.train) == 8


def test_recordings_that_are_none_are_left_out_or_named(tmp_path: Path, load: Load) -> None:
    generator = np.random.default_rng(0)
    for part, name, number in np.ndindex(2, 2, 4):
        path = tmp_path / ("train", "val")[part] / "ab"[name] / f"{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, generator.normal(size=(2, 20)))
    np.save(tmp_path / "train/a/1.npy", np.full((2, 20), np.nan))
    (tmp_path / "train/b/2.npy").write_bytes(b"\x93NUMPY")
    base = {
        "model.factory": "m:build",
        "local.kind": "signals",
        "local.train": "train",
        "local.val": "val",
        "input.window": 10,
    }
    with pytest.raises(TaskError, match=r"2 files cannot be used: .*/a/1\.npy: a recording must hold finite numbers.*"):
        load({}, base)
    task = load(SKIP, base)
    assert len(task.local.train) == 2 * 6
    assert [line.partition(": ")[0] for line in task.skipped] == [
        f"{tmp_path}/train/a/1.npy",
        f"{tmp_path}/train/b/2.npy",
    ]
