"""Tasks of NNTrainer's model files: their data, labels and training; mistakes in one line."""

from pathlib import Path

import numpy as np
import pytest

from tuner import load_task
from tuner.arrays import Array
from tuner.errors import TunerError
from tuner.task import Task

HEAD = "[Model]\nloss = cross\nepochs = 3\n[Optimizer]\ntype = adam\n"
IN = "[in]\ntype = input\ninput_shape = 1:2:3\nflatten = true\n"
BODY = f"{IN}[fc]\ntype = fully_connected\nunit = 3\nactivation = softmax\n"
SETS = "[train_set]\ntype = file\npath = train.dat\nbuffer_size = 8\n"


def samples(folder: Path, name: str = "train.dat", values: int = 6, labels: Array | None = None) -> Array:
    """Write samples 0, 1, 2, ... of three classes in turn, and return them."""
    hot = np.eye(3)[np.arange(30) % 3] if labels is None else labels
    table = np.hstack([np.arange(len(hot) * values).reshape(len(hot), values), hot]).astype("<f4")
    (folder / name).write_bytes(table.tobytes())
    return table[:, :values]


def task_of(folder: Path, text: str) -> Task:
    (folder / "model.ini").write_text(text)
    return load_task(str(folder / "model.ini"))


def refused(folder: Path, text: str) -> str:
    with pytest.raises(TunerError) as caught:
        task_of(folder, text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_samples_and_one_hot_labels_in_turn_are_read(tmp_path: Path) -> None:
    x = samples(tmp_path)
    samples(tmp_path, "valid.dat", labels=np.eye(3))
    task = task_of(tmp_path, HEAD + SETS + "[valid_set]\npath = valid.dat\n" + BODY)
    assert (task.name, task.loss, task.labels, task.head_rows) == ("model", "single-label", ("0", "1", "2"), (0, 1, 2))
    assert (len(task.local.train), len(task.local.val), task.global_) == (30, 3, None)
    assert task.local.train.labels.tolist() == [0, 1, 2] * 10
    np.testing.assert_array_equal(task.local.train.load(4), x[4].reshape(1, 2, 3))
    assert task.given is not None
    assert (task.given.recipe.epochs, task.given.recipe.optimiser, task.given.frozen_parameters) == (3, "adam", 0)


def test_a_part_is_held_out_where_there_is_no_validation_data(tmp_path: Path) -> None:
    samples(tmp_path)
    task = task_of(tmp_path, HEAD + SETS + BODY)
    assert (len(task.local.train), len(task.local.val)) == (24, 6)


def test_arrays_with_names_are_read_too(tmp_path: Path) -> None:
    x = np.arange(90, dtype=np.uint8).reshape(15, 2, 3)
    np.savez(
        tmp_path / "a.npz", x_train=x, y_train=np.arange(15) % 3, x_val=x[:3], y_val=np.eye(3)[:3], classes=list("abc")
    )
    sets = "[train_set]\npath = a.npz\n[valid_set]\npath = a.npz\n"
    task = task_of(tmp_path, HEAD + sets + BODY)
    assert task.labels == ("a", "b", "c")
    assert task.local.train.load(1).shape == (1, 2, 3)
    assert task.local.val.labels.tolist() == [0, 1, 2]


def test_a_sigmoid_has_several_labels_a_sample(tmp_path: Path) -> None:
    samples(tmp_path, labels=np.array([[1, 1, 0], [0, 0, 1]] * 5))
    task = task_of(tmp_path, HEAD + SETS + BODY.replace("softmax", "sigmoid"))
    assert task.loss == "multi-label"
    assert task.local.train.labels.shape[1] == 3


def test_weights_are_those_of_save_path_where_the_file_is_there(tmp_path: Path) -> None:
    samples(tmp_path)
    text = HEAD.replace("[Model]\n", "[Model]\nsave_path = model.bin\n") + SETS + BODY
    assert "weights" not in dict(task_of(tmp_path, text).model.arguments)
    before = task_of(tmp_path, text).fingerprint()
    (tmp_path / "model.bin").write_bytes(bytes(4 * 9))
    task = task_of(tmp_path, text)
    assert dict(task.model.arguments)["weights"] == str(tmp_path / "model.bin")
    first = task.fingerprint()
    (tmp_path / "model.bin").write_bytes(bytes(4 * 9 + 8))
    assert len({before, first, task.fingerprint()}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + BODY, "there is no training data, without which `tuner describe` shows the planned memory alone"),
        (HEAD + "[train_set]\npath = no.dat\n" + BODY, "[train_set]: path: no such file"),
        (HEAD + SETS + "[test_set]\npath = train.dat\n" + BODY, "[test_set]: is also the data of [train_set]"),
        (HEAD + SETS + BODY.replace("1:2:3", "1:2:4"), "must hold 8 values of a sample and 3 of its label in turn"),
        (HEAD + "[train_set]\npath = odd.dat\n" + BODY, "must be a single 1 among zeros with loss = cross, got [1."),
        (HEAD + "[train_set]\npath = nan.dat\n" + BODY, "the samples must be finite numbers"),
        (HEAD + "[train_set]\npath = a.npz\n" + BODY, "the model reads 1:2:3, 6 numbers a sample, got float64 [4, 5]"),
        (
            HEAD + SETS + "[in]\ntype = input\ninput_shape = 1:1:6\n[e]\ntype = embedding\nin_dim = 100\nout_dim = 1\n"
            "[fc]\ntype = fully_connected\nunit = 3\nactivation = softmax\n[f]\ntype = flatten\n",
            "loss = cross requires softmax",
        ),
        (
            HEAD + SETS + "[in]\ntype = input\ninput_shape = 1:1:6\n[e]\ntype = embedding\nin_dim = 100\nout_dim = 1\n"
            "[f]\ntype = flatten\n[fc]\ntype = fully_connected\nunit = 3\nactivation = softmax\n",
            "layer 'e' reads whole numbers from 0 to 99, got 100",
        ),
        (HEAD + SETS + BODY + "weight_regularizer = l2norm\n", "[fc]: weight_regularizer = l2norm is not carried out"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    x = samples(tmp_path)
    samples(tmp_path, "odd.dat", labels=np.array([[1, 1, 0], [0, 0, 1]]))
    np.hstack([np.where(x == 7, np.nan, x), np.eye(3)[np.arange(30) % 3]]).astype("<f4").tofile(tmp_path / "nan.dat")
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 5)), y=np.arange(4) % 3)
    assert message in refused(tmp_path, text)
