"""The real data beside the project: its counts, as its README gives them."""

import os
from pathlib import Path

import numpy as np
import pytest

from tuner.task import open_task

pytestmark = pytest.mark.data

DATA = Path(os.environ.get("TUNER_DATA") or Path(__file__).parents[3] / "shared" / "data")

PHOTOS = """
[model]
factory = "torchvision.models:mobilenet_v2"
weights = "${TUNER_DATA}/models/mobilenet_v2_imagenet.pth"
[global]
kind = "images"
train = "${TUNER_DATA}/images/global/train"
val = "${TUNER_DATA}/images/global/val"
classes = "${TUNER_DATA}/images/global/classes.tsv"
[local]
kind = "images"
train = "${TUNER_DATA}/images/local/train"
val = "${TUNER_DATA}/images/local/val"
[input]
size = 160
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
"""

ARRAYS = """
model.factory = "net:build"
[local]
kind = "arrays"
train = "${TUNER_DATA}/%(file)s"
val = "${TUNER_DATA}/%(file)s"
"""


@pytest.fixture(autouse=True)
def _data(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DATA / "README.md").is_file():
        pytest.skip(f"the real data is not at {DATA}: set TUNER_DATA to its folder")
    monkeypatch.setenv("TUNER_DATA", str(DATA))


def test_the_photos_load_with_the_counts_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(PHOTOS)
    task = open_task(str(tmp_path / "task.toml"))
    assert task.global_ is not None
    partitions = (task.global_.train, task.global_.val, task.local.train, task.local.val)
    assert [len(samples) for samples in partitions] == [8000, 2000, 1192, 347]
    assert len(task.labels) == 210
    assert len(task.head_rows) == 200
    assert task.labels[200:] == (
        *("dress", "hat", "longsleeve", "outwear", "pants"),
        *("shirt", "shoes", "shorts", "skirt", "t-shirt"),
    )
    assert task.head_rows[task.labels.index("goldfish, Carassius auratus")] == 1
    assert np.bincount(task.global_.train.labels).tolist() == [40] * 200
    assert task.input_shape == (3, 160, 160)
    assert len(task.fingerprint()) == 32


@pytest.mark.parametrize(
    ("file", "counts", "shape"),
    [("mnist/mnist.npz", [60000, 10000], (1, 28, 28)), ("cifar10/cifar10_small.npz", [10000, 2000], (3, 32, 32))],
)
def test_the_arrays_load_with_their_counts(
    tmp_path: Path, file: str, counts: list[int], shape: tuple[int, ...]
) -> None:
    (tmp_path / "task.toml").write_text(ARRAYS % {"file": file})
    task = open_task(str(tmp_path / "task.toml"))
    assert [len(task.local.train), len(task.local.val)] == counts
    assert len(task.labels) == 10
    assert task.input_shape == shape


def test_the_muscle_signals_load_with_the_counts_of_the_readme() -> None:
    task = open_task(str(Path(__file__).parents[2] / "examples" / "emg" / "task.toml"))
    assert task.global_ is not None
    assert task.labels[:2] == ("neutral", "radial deviation")
    assert (len(task.labels), task.input_shape) == (7, (8, 100))
    people = [
        {side.name(index).split("/")[-2] for index in range(len(side))}
        for side in (task.global_.train, task.global_.val)
    ]
    assert people[0].isdisjoint(people[1])
    assert [len(side) for side in people] == [18, 4]
    for _, samples in task.local.partitions():
        recordings = {samples.name(index).partition("@")[0] for index in range(len(samples))}
        assert len(recordings) == 28
        assert set(samples.labels.tolist()) == set(range(7))
    local = [{side.name(index).rpartition("[")[0] for index in range(len(side))} for _, side in task.local.partitions()]
    assert len(set.union(*local)) == 3
    assert len(task.input.mean) == len(task.input.std) == 8


def test_the_clips_of_a_recording_are_on_one_side_of_the_sounds_example() -> None:
    pytest.importorskip("soundfile", reason="sounds need the extra [audio]")
    task = open_task(str(Path(__file__).parents[2] / "examples" / "sounds" / "task.toml"), look=False)
    sides = [{samples.origin(at) for at in range(len(samples))} for _, samples in task.partitions()]
    assert all(sides)
    assert len(set().union(*sides)) == sum(len(side) for side in sides) > 150
    assert len(task.labels) == len(task.head_rows) == 24
    assert (task.local.train.labels.sum(axis=1) >= 2).all()  # whoever has a label has its parents
