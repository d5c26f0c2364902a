"""Tasks whose samples have targets: numbers instead of labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.task.conftest import Load, draw
from tuner.arrays import Doubles
from tuner.errors import TaskError
from tuner.task import TargetScale, Task, standardised
from tuner.task.info import outline, task_info
from tuner.task.mixing import class_sizes, mixed_indices

X = np.random.default_rng(0).normal(size=(20, 1, 4, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(40, 5, (20, 2))
REGRESSION = {"loss.kind": "regression"}


def targets(task: Task, partition: str) -> Doubles:
    """Return a partition's targets in their own unit."""
    assert task.scale is not None
    values: Doubles = dict(task.partitions())[partition].labels * np.array(task.scale.std) + np.array(task.scale.mean)
    return values


def test_targets_are_standardised_and_their_unit_is_kept(load_npz: Load) -> None:
    arrays = {"x_train": X[:15], "y_train": Y[:15], "x_val": X[15:], "y_val": Y[15:], "classes": ["width", "height"]}
    task = load_npz(arrays, REGRESSION | {"local.val": "data.npz"})
    assert (task.labels, task.head_rows) == (("width", "height"), (0, 1))
    assert task.scale is not None
    np.testing.assert_allclose(task.scale.mean, Y[:15].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(task.scale.std, Y[:15].std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(task.local.train.labels.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(targets(task, "local.val"), Y[15:], rtol=1e-5)
    assert not task_info(task).targets.has_classes
    assert outline(task).scale == task.scale


def test_one_number_a_sample_is_one_output_and_a_fifth_is_held_out(load_npz: Load) -> None:
    task = load_npz({"x": X, "y": np.arange(20)}, REGRESSION)
    assert task.labels == ("output 0",)
    assert (len(task.local.train), len(task.local.val)) == (16, 4)
    values = [*targets(task, "local.train")[:, 0], *targets(task, "local.val")[:, 0]]
    np.testing.assert_allclose(sorted(values), np.arange(20), atol=1e-5)


def test_targets_are_of_one_class_wherever_samples_are_drawn_by_class(load_npz: Load) -> None:
    task = load_npz({"x": X, "y": Y}, REGRESSION)
    assert class_sizes(task.local.train) == (16,)
    assert len(mixed_indices(task.local.train.labels, 0.5)) == 8


def test_a_manifest_lists_numbers(tmp_path: Path, load: Load) -> None:
    lines = ["path,label"]
    for number in range(10):
        draw(tmp_path / f"{number}.png", (number * 20, 0, 0))
        lines.append(f"{number}.png,{number / 4}|{-number}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    task = load(REGRESSION | {"local.train": "list.csv", "local.val": None})
    assert task.labels == ("output 0", "output 1")
    found = np.concatenate([targets(task, "local.train"), targets(task, "local.val")])
    np.testing.assert_allclose(sorted(found[:, 0]), np.arange(10) / 4, atol=1e-5)
    np.testing.assert_allclose(sorted(found[:, 1]), np.arange(-9, 1), atol=1e-5)


def test_recordings_have_targets_too(load_npz: Load) -> None:
    arrays = {"x": np.tile(X[:, 0], (1, 1, 3)), "y": Y[:, 0]}
    task = load_npz(arrays, REGRESSION | {"local.kind": "signals", "input.window": 6, "input.hop": 3})
    assert task.local.train.labels.shape == (16 * 3, 1)  # three windows of each recording
    assert len(set(targets(task, "local.train")[:, 0].round(3))) == 16


def test_local_data_without_targets_takes_outputs_and_scale_of_the_global_data(load_npz: Load, tmp_path: Path) -> None:
    np.savez(tmp_path / "local.npz", x_train=X[:15], x_val=X[15:])
    local = {"local.labels": "none", "local.train": "local.npz", "local.val": "local.npz"}
    global_ = {"global.kind": "arrays", "global.train": "data.npz"}
    task = load_npz({"x": X, "y": Y, "classes": ["width", "height"]}, REGRESSION | local | global_)
    assert not task.labelled
    assert task.labels == ("width", "height")
    assert (len(task.local.train), len(task.local.val)) == (15, 5)
    assert task.global_ is not None
    np.testing.assert_allclose(task.global_.train.labels.mean(axis=0), 0, atol=1e-5)


BAD: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "text": ({"y": np.array(["a"] * 20)}, {}, r"the targets of a regression must be numbers \[n\] or \[n, outputs\]"),
    "NaN": ({"y": np.where(np.arange(20) == 3, np.nan, 1.0)}, {}, r"must be finite numbers, got \[nan\] for sample 3"),
    "constant": ({"y": np.ones(20)}, {}, r"targets of 'output 0' are all 1, so that there is nothing to learn"),
    "names": ({"classes": ["a"]}, {}, r"2 outputs need as many different names in 'classes', got 1"),
    "delta": ({}, {"loss.delta": 0.0}, r"loss\.delta: input should be greater than 0, got 0\.0"),
    "smoothing": ({}, {"loss.label_smoothing": 0.1}, r'loss\.label_smoothing is for loss\.kind = "single-label"'),
    "top": ({}, {"loss.top_k": 3}, r'loss\.top_k is for loss\.kind = "single-label", got "regression"'),
    "labels": ({}, {"labels.new": ["a"]}, r'\[labels\] is about classes, but loss\.kind = "regression" has none'),
    "classes": (
        {},
        {"global.kind": "arrays", "global.train": "data.npz", "global.classes": "c.tsv"},
        r"global\.classes is about classes",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_regression_can_have_is_refused_in_one_line(name: str, load_npz: Load) -> None:
    arrays, changes, message = BAD[name]
    with pytest.raises(TaskError, match=message) as error:
        load_npz({"x": X, "y": Y} | arrays, REGRESSION | changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("cell", "message"),
    [("tall", r"must be a number, got 'tall'"), ("1|2", r"must have as many numbers, separated by \|, got 1 and 2")],
)
def test_a_manifest_of_other_cells_is_refused(cell: str, message: str, tmp_path: Path, load: Load) -> None:
    draw(tmp_path / "a.png")
    draw(tmp_path / "b.png", (1, 2, 3))
    (tmp_path / "list.csv").write_text(f"path,label\na.png,1\nb.png,{cell}\n")
    with pytest.raises(TaskError, match=message):
        load(REGRESSION | {"local.train": "list.csv", "local.val": None})


def test_data_with_other_outputs_than_the_rest_are_refused(tmp_path: Path, load_npz: Load) -> None:
    np.savez(tmp_path / "other.npz", x=X, y=Y[:, 0])
    with pytest.raises(TaskError, match=r"has the outputs output 0, .* must have the same targets in the same order"):
        load_npz({"x": X, "y": Y}, REGRESSION | {"local.val": "other.npz"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss.delta": 1.0}, r'loss\.delta is for loss\.kind = "regression", got "single-label": leave it out'),
        ({"loss.label_smoothing": 1.0}, r"loss\.label_smoothing: input should be less than 1, got 1\.0"),
        ({"loss.top_k": 1}, r"loss\.top_k: input should be greater than or equal to 2, got 1"),
    ],
)
def test_settings_of_classes_have_bounds(changes: dict[str, Any], message: str, load_npz: Load) -> None:
    with pytest.raises(TaskError, match=message):
        load_npz({"x": X, "y": np.arange(20) % 2}, changes)


def test_another_scale_says_the_same_of_the_targets(load_npz: Load) -> None:
    task = load_npz({"x": X, "y": Y}, REGRESSION)
    other = standardised(task, TargetScale((0.0, 1.0), (2.0, 4.0)))
    np.testing.assert_allclose(targets(other, "local.train"), targets(task, "local.train"), rtol=1e-5)
    assert other.fingerprint() != task.fingerprint()
