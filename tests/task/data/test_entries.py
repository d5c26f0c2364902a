"""Entries of a task's data: class folders, manifests and arrays, and mistakes in them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.task.conftest import Load
from tuner.errors import TaskError

X, Y = np.zeros((6, 2, 4, 4), np.float32), np.array([0, 0, 0, 1, 1, 1])
MULTI = {"loss.kind": "multi-label"}


def test_a_class_folder_without_images_is_named(images: Path, load: Load) -> None:
    (images / "l/train/empty").mkdir()
    (images / "l/train/empty/notes.txt").write_text("")
    with pytest.raises(TaskError, match=r"l/train/empty: no images .*: add some or remove it"):
        load()
    with pytest.raises(TaskError, match=r"l/train/dog: no class folders in it"):
        load({"local.train": "l/train/dog"})


def test_hidden_and_other_files_are_ignored_and_any_case_of_suffix_counts(images: Path, load: Load) -> None:
    dog = images / "l/train/dog"
    (images / "l/train/.cache").mkdir()
    (dog / ".hidden.png").write_bytes(b"")
    (dog / "notes.txt").write_text("")
    (dog / "0.png").rename(dog / "0.PNG")
    task = load()
    assert len(task.local.train) == 8
    assert task.local.train.name(0) == str(dog / "0.PNG")


def test_an_image_that_is_not_one_is_named_when_it_is_loaded(images: Path, load: Load) -> None:
    samples = load().local.train
    (images / "l/train/dog/0.png").write_text("not pixels")
    with pytest.raises(TaskError, match=r"dog/0\.png: not an image that can be decoded .*: replace or remove it"):
        samples.load(0)


def test_a_label_that_train_lacks_is_named(images: Path, load: Load) -> None:
    (images / "l/val/hat").rename(images / "l/val/hats")
    with pytest.raises(TaskError, match=r"local\.val has the label 'hats', which local\.train lacks .*'hat'\?"):
        load()


def manifest(path: Path, *lines: str, header: str = "path,label") -> str:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path.name


def test_a_manifest_lists_paths_relative_to_itself(images: Path, load: Load) -> None:
    listed = manifest(images / "l/m.csv", "train/dog/0.png,dog", "train/hat/0.png,hat", "train/dog/1.png,dog")
    task = load({"local.train": f"l/{listed}"})
    assert task.local.train.labels.tolist() == [0, 1, 0]
    assert task.local.train.name(1) == str(images / "l/train/hat/0.png")


def test_a_multi_label_manifest_separates_labels_by_bars(images: Path, load: Load) -> None:
    train = manifest(images / "m.csv", "l/train/dog/0.png,red|dog", "l/train/hat/0.png,hat", "l/train/hat/1.png,")
    val = manifest(images / "v.csv", "l/val/dog/0.png,red | hat")
    task = load({**MULTI, "local.train": train, "local.val": val})
    assert task.labels == ("dog", "hat", "red")
    assert task.local.train.labels.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert task.local.val.labels.tolist() == [[0, 1, 1]]
    assert task.local.val.labels.dtype == np.float32


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("l/train/dog/9.png,dog", r"m\.csv:2: no such file .*9\.png"),
        ("l/train/dog/0.png,", r"m\.csv:2: a sample of a single-label task must have one label, got ''"),
        ("l/train/dog/0.png,dog|hat", r"must have one label, got 'dog\|hat': set loss\.kind = \"multi-label\""),
        ("l/train/dog/0.png", r"m\.csv:2: a line must have path,label, got 1 cells"),
        ("", r"m\.csv: the train partition is empty"),
    ],
)
def test_a_mistake_in_a_manifest_is_reported_with_its_line(images: Path, load: Load, line: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load({"local.train": manifest(images / "m.csv", line)})


def test_a_manifest_without_its_header_or_encoding_is_reported(images: Path, load: Load) -> None:
    with pytest.raises(TaskError, match=r"must be 'path,label' or 'path,label,session', got 'file,class'"):
        load({"local.train": manifest(images / "m.csv", header="file,class")})
    (images / "m.csv").write_bytes(b"path,label\n\xff\xfe,dog\n")
    with pytest.raises(TaskError, match=r"m\.csv: cannot be read \(it is not UTF-8"):
        load({"local.train": "m.csv"})


def test_an_npz_gives_its_partitions(load_npz: Load) -> None:
    arrays = {"x_train": X, "y_train": Y, "x_val": X[:2], "y_val": Y[:2], "x_test": X[:3], "y_test": Y[:3]}
    task = load_npz(arrays, {"local.val": "data.npz", "local.test": "data.npz"})
    assert task.labels == ("0", "1")
    assert task.local.test is not None
    assert [len(samples) for samples in (task.local.train, task.local.val, task.local.test)] == [6, 2, 3]
    assert task.local.val.name(1) == "x_val[1]"
    assert task.input_shape == (2, 4, 4)


def test_val_is_the_test_arrays_where_there_are_no_val_arrays(load_npz: Load) -> None:
    arrays = {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2]}
    assert load_npz(arrays, {"local.val": "data.npz"}).local.val.name(0) == "x_test[0]"
    with pytest.raises(TaskError, match=r"data\.npz:x_test: is both val and test"):
        load_npz(arrays, {"local.val": "data.npz", "local.test": "data.npz"})


def test_one_pair_of_arrays_is_divided(load_npz: Load) -> None:
    task = load_npz({"x": X, "y": Y, "classes": np.array(["a", "b"])})
    assert task.labels == ("a", "b")
    assert (len(task.local.train), len(task.local.val)) == (4, 2)
    with pytest.raises(TaskError, match=r"data\.npz:x: is both train and val"):
        load_npz({"x": X, "y": Y}, {"local.val": "data.npz"})


def test_only_labels_that_occur_get_a_row_and_global_integers_are_rows_of_the_given_head(
    tmp_path: Path, load_npz: Load
) -> None:
    assert load_npz({"x": X, "y": Y + 7}).labels == ("7", "8")
    np.savez(tmp_path / "g.npz", x=X, y=np.array([0, 0, 0, 4, 4, 4]))
    task = load_npz({"x": X, "y": Y * 8 + 4}, {"global.kind": "arrays", "global.train": "g.npz"})
    assert (task.labels, task.head_rows, task.local_labels) == (("0", "4", "12"), (0, 4), (1, 2))


def test_image_arrays_are_resized_like_files(load_npz: Load) -> None:
    images = {"local.kind": "images", "input.size": 4, "input.mean": [0.5], "input.std": [0.5]}
    assert load_npz({"x": np.zeros((6, 9, 9), np.uint8), "y": Y}, images).input_shape == (3, 4, 4)


def test_multi_hot_arrays_keep_their_columns_and_integers_are_one_label_each(load_npz: Load) -> None:
    hot = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 1], [0, 0, 0]], bool)
    task = load_npz({"x_train": X, "y_train": hot, "x_val": X, "y_val": hot}, {**MULTI, "local.val": "data.npz"})
    assert task.labels == ("0", "2")
    assert task.local.train.labels.tolist() == hot[:, [0, 2]].astype(float).tolist()
    assert load_npz({"x": X, "y": Y}, MULTI).local.train.labels.shape == (4, 2)
    with pytest.raises(TaskError, match="only 0 and 1"):
        load_npz({"x": X, "y": np.full((6, 2), 0.5)}, MULTI)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": X}, r"train data must be in the arrays \(x_train, y_train\) or \(x, y\), got x_train"),
        ({"x": X, "y": Y[:4]}, r"there must be one label per sample, got \[6, 2, 4, 4\] and \[4\]"),
        ({"x": X, "y": np.zeros((6, 3), np.float32)}, r"must be integers \[n\], got multi-hot \[6, 3\]"),
        (
            {"x": X, "y": np.zeros((6, 3, 2))},
            r"labels must be integers \[n\].*got float64 \[6, 3, 2\]: number the classes from 0",
        ),
        ({"x": X, "y": Y - 1}, r"labels must be integers from 0, got -1"),
        ({"x": X, "y": Y, "classes": np.array(["a"])}, r"2 classes need 2 different names in 'classes', got 1"),
        ({"x": X[:0], "y": Y[:0]}, r"the train partition is empty"),
        ({"x": np.zeros(6), "y": Y}, r"data\.npz:x must be numbers \[n, C, \.\.\.\], got float64"),
        ({"x": np.array([{}] * 6), "y": Y}, r"cannot be read as \.npz"),
    ],
)
def test_a_mistake_in_an_npz_is_reported(load_npz: Load, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_npz(arrays)
