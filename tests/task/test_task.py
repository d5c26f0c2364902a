"""Tasks: what they refuse, their batches and fingerprints, and the built-in digits."""

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.task.conftest import Load
from tuner.errors import TaskError
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Subset, Task, digits
from tuner.task.contents import PartitionContents


def samples(labels: object, count: int = 4) -> ArraySamples:
    return ArraySamples(np.zeros((count, 1, 2)), np.asarray(labels), InputSpec("arrays"))


def build(labels: object, count: int = 4, *, loss: str = "single-label") -> Task:
    given = samples(labels, count)
    return Task("t", ModelSpec("m:f"), InputSpec("arrays"), loss, Domain(given, given), None, ("a", "b"), (), (0, 1))  # type: ignore[arg-type]  # mistakes are the point


@pytest.mark.parametrize(
    ("labels", "loss", "message"),
    [
        (
            [[0, 1]] * 4,
            "single-label",
            r"t: local\.train: the labels of a single-label task must be \[n\], got \[4, 2\]",
        ),
        ([0, 1, 2, 0], "single-label", r"labels must be rows 0 to 1, got 0 to 2"),
        ([0.0, 1, 1, 0], "single-label", r"labels must be int64, got float64"),
        ([0, 1], "single-label", r"4 samples need as many labels, got 2"),
        ([0, 1, 1, 0], "multi-label", r"the labels of a multi-label task must be float32 \[n, 2\], got int64 \[4\]"),
    ],
)
def test_labels_of_another_form_are_refused(labels: object, loss: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        build(labels, loss=loss)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local": Domain(samples([0, 1, 0, 1]), Subset(samples([0, 1, 0, 1]), []))}, r"local\.val is empty"),
        ({"labels": ("a", "a")}, "got 'a' twice"),
        ({"head_rows": (0, 0)}, r"head_rows must be different rows for at most 2 labels, got \[0, 0\]"),
        ({"local_labels": (2,)}, r"local_labels must be rows below 2, got \[2\]"),
    ],
)
def test_a_task_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        replace(build([0, 1, 0, 1]), **changes)  # type: ignore[arg-type]  # mistakes are the point


def test_a_batch_is_decoded_and_normalised_as_the_model_takes_it(images: Path, load: Load) -> None:
    task = load()
    samples = task.local.val
    batch = task.batch(samples, (5, 0))
    assert (batch.shape, batch.dtype) == ((2, 3, 6, 6), np.dtype(np.float32))
    for row, index in zip(batch, (5, 0), strict=True):
        np.testing.assert_allclose(row, (samples.load(index) / 255 - 0.5) / 0.5, rtol=1e-5)
    assert (task.batch(samples, np.array([5])) == batch[:1]).all()


def test_the_fingerprint_is_the_same_each_time_the_task_is_loaded_and_survives_pickling(
    images: Path, load: Load
) -> None:
    task = load()
    assert load().fingerprint() == task.fingerprint()
    assert len(task.fingerprint()) == 32
    assert pickle.loads(pickle.dumps(task)).fingerprint() == task.fingerprint()  # noqa: S301 - our own bytes


def test_the_fingerprint_sees_weights_files_labels_and_settings(images: Path, load: Load) -> None:
    settings = {"model.weights": "weights.pth", "model.factory": "net.py:build"}
    net, weights, hats = images / "net.py", images / "weights.pth", images / "l/train/hat"
    changes: tuple[Callable[[], object], ...] = (
        lambda: net.write_text("1"),
        lambda: weights.write_bytes(b"others!"),
        lambda: net.write_text("2"),
        lambda: (images / "l/train/dog/1.png").rename(hats / "9.png"),
        (hats / "9.png").unlink,
        lambda: (hats / "0.png").write_bytes((hats / "0.png").read_bytes() + b"longer"),
        lambda: settings.update({"input.mean": [0.4]}),  # type: ignore[dict-item]  # of another type
    )
    seen = [(change(), load(settings).fingerprint())[1] for change in changes]
    assert len(set(seen)) == len(changes)


def test_two_classes_of_equal_files_that_became_one_are_told_of() -> None:
    before, now = PartitionContents({"a": "5 x", "b": "5 x"}, "o"), PartitionContents({"c": "5 x"}, "p")
    assert before.differences(now) == ["class a is called c", "5 fewer of class b"]


def test_the_fingerprint_needs_the_weights(images: Path, load: Load) -> None:
    task = load({"model.weights": "weights.pth"})
    (images / "weights.pth").unlink()
    with pytest.raises(TaskError, match=r"weights\.pth: cannot be read"):
        task.fingerprint()


def test_digits_know_zero_to_six_and_personalise_to_the_rest() -> None:
    task = digits()
    assert task.global_ is not None
    assert task.labels == tuple("0123456789")
    assert (task.head_rows, task.local_labels) == (tuple(range(7)), (7, 8, 9))
    assert np.bincount(task.local.train.labels).tolist() == [0] * 7 + [60] * 3
    assert set(task.global_.val.labels.tolist()) == set(range(7))
    sample = task.local.train.load(0)
    assert (sample.shape, sample.dtype) == ((1, 8, 8), np.dtype(np.float32))
    assert 0 <= sample.min() < sample.max() <= 1
    assert task.fingerprint() == digits().fingerprint()
    partitions = [samples for _, samples in task.partitions()]
    names = [samples.name(index) for samples in partitions for index in range(len(samples))]
    assert len(partitions) == 6
    assert len(set(names)) == len(names)


def test_digits_without_scikit_learn_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(TaskError, match=r'pip install "device-tuner\[demo\]"'):
        digits()
