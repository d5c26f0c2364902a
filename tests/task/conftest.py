"""Tiny generated data and the task files over it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tuner.task import Task, open_task


def draw(path: Path, colour: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (12, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


@pytest.fixture(autouse=True)
def _cache(cache: Path) -> None:
    """Keep the cache of the user as it is."""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """`g/` knows cat and dog, `l/` adds hat and has more dogs; four 12 × 8 images a class, each different."""
    for place, classes in (("g/train", "cat dog"), ("g/val", "cat dog"), ("l/train", "hat dog"), ("l/val", "hat dog")):
        for at, name in enumerate(classes.split()):
            for number in range(4):
                draw(tmp_path / place / name / f"{number}.png", (at * 90, number * 40, len(place)))
    (tmp_path / "weights.pth").write_bytes(b"weights")
    return tmp_path


IMAGES: dict[str, Any] = {
    "model.factory": "torchvision.models:mobilenet_v2",
    "local.kind": "images",
    "local.train": "l/train",
    "local.val": "l/val",
    "input.size": 6,
    "input.mean": [0.5],
    "input.std": [0.5],
}
GLOBAL = {"global.kind": "images", "global.train": "g/train", "global.val": "g/val"}
Write = Callable[..., Path]
Load = Callable[..., Task]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a task file of `IMAGES` with changes, given as dotted keys; None leaves a key out."""
    import tomli_w

    def write_task(changes: dict[str, Any] | None = None, base: dict[str, Any] = IMAGES) -> Path:
        tables: dict[str, Any] = {}
        for dotted, value in {**base, **(changes or {})}.items():
            *sections, key = dotted.split(".")
            table = tables
            for section in sections:
                table = table.setdefault(section, {})
            if value is not None:
                table[key] = value
        path = tmp_path / "task.toml"
        path.write_text(tomli_w.dumps(tables))
        return path

    return write_task


@pytest.fixture
def load(write: Write) -> Load:
    return lambda *args, **kwargs: open_task(str(write(*args, **kwargs)))


@pytest.fixture
def load_npz(tmp_path: Path, load: Load) -> Load:
    """Save arrays as ``data.npz`` and load a task over it; further changes as dotted keys."""

    def load_arrays(arrays: dict[str, Any], changes: dict[str, Any] | None = None) -> Task:
        np.savez(tmp_path / "data.npz", **arrays)
        base = {"model.factory": "m:build", "local.kind": "arrays", "local.train": "data.npz"}
        return load(changes, base)

    return load_arrays
