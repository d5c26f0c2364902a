"""The real data beside the project: its counts, as its README gives them."""

from pathlib import Path

import numpy as np
import pytest

from tuner.task import open_task

pytestmark = pytest.mark.data
EXAMPLES = Path(__file__).parents[2] / "examples"
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
    task = open_task(str(EXAMPLES / "emg/task.toml"))
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


def test_new_digits_come_after_five_others() -> None:
    task = open_task(f"{EXAMPLES / 'continual/new_digits.py'}:task")
    assert task.global_ is not None
    assert {int(label) for label in task.global_.train.labels} == set(range(5))
    assert {int(label) for label in task.local.train.labels} == set(range(5, 10)) == set(task.local_labels)
    assert task.head_rows == tuple(range(5))
    partitions = [samples for domain in (task.global_, task.local) for _, samples in domain.partitions()]
    assert [len(samples) for samples in partitions] == [3000, 1000, 1000] * 2
    names = [samples.name(index) for samples in partitions for index in range(len(samples))]
    assert len(set(names)) == len(names)


def test_a_new_person_makes_the_same_gestures() -> None:
    task = open_task(str(EXAMPLES / "continual/new_person.toml"))
    assert task.global_ is not None
    assert len(task.labels) == 7
    assert np.unique(task.local.train.labels).tolist() == np.unique(task.global_.train.labels).tolist()
    people = [
        {part.name(index).partition("#eval/")[2].partition("/")[0] for index in range(len(part))}
        for part in (task.global_.train, task.global_.val, task.local.train, task.local.val)
    ]
    assert people == [{"female0"}, {"female0"}, {"male0"}, {"male0"}]
