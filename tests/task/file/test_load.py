"""Task files: what is loaded, what is filled in, and mistakes in one line."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.task.conftest import GLOBAL, Load, Write
from tuner.errors import TaskError
from tuner.task import InputDefaults, InputSpec, ModelSpec, Pretrain, digits, open_task
from tuner.task.file.variables import expand


def test_a_task_of_image_folders_loads(images: Path, load: Load) -> None:
    task = load(GLOBAL)
    assert task.name == images.name
    assert task.labels == ("cat", "dog", "hat")
    assert task.head_rows == (0, 1)
    assert task.local_labels == (1, 2)
    assert task.input_shape == (3, 6, 6)
    assert task.input.resize == 6
    assert task.global_ is not None
    assert [len(samples) for samples in (task.local.train, task.local.val, task.global_.train)] == [8, 8, 8]
    assert task.local.train.labels.tolist() == [1] * 4 + [2] * 4
    assert task.local.test is None


def test_without_global_data_the_head_is_the_local_classes(images: Path, load: Load) -> None:
    task = load({"name": "mine", "model.weights": "IMAGENET1K_V1"})
    assert (task.name, task.global_, task.labels, task.head_rows) == ("mine", None, ("dog", "hat"), ())
    assert task.model.weights == "IMAGENET1K_V1"  # no file: a name is kept as it is
    assert open_task(str(images)).labels == ("dog", "hat")  # a folder means the task file in it


def test_without_labels_every_image_counts_and_the_model_answers_with_its_own_classes(images: Path, load: Load) -> None:
    (images / "l/train/dog/0.png").rename(images / "l/train/loose.png")
    task = load({**GLOBAL, "local.labels": "none"})
    assert (task.labels, task.local_labels, task.labelled) == (("cat", "dog"), (), False)
    assert (len(task.local.train), task.local.train.labels.tolist()) == (8, [0] * 8)
    assert task.fingerprint() != load(GLOBAL).fingerprint()


def test_without_labels_the_inputs_of_an_npz_do(images: Path, load: Load) -> None:
    np.savez(images / "l.npz", x=np.zeros((6, 6, 6, 3), np.uint8))
    task = load({**GLOBAL, "local.labels": "none", "local.train": "l.npz", "local.val": None})
    assert (len(task.local.train), len(task.local.val)) == (5, 1)
    np.savez(images / "l.npz", y=np.zeros(6))
    with pytest.raises(TaskError, match="train data must be in one of x_train, x, got y"):
        load({**GLOBAL, "local.labels": "none", "local.train": "l.npz", "local.val": None})


def test_one_local_class_is_enough(images: Path, load: Load) -> None:
    for partition in ("train", "val"):
        shutil.rmtree(images / "l" / partition / "dog")
    assert load(GLOBAL).local_labels == (2,)


def test_a_missing_val_is_held_out_from_train_where_there_are_enough(images: Path, load: Load) -> None:
    task = load({"local.val": None})
    assert (len(task.local.train), len(task.local.val)) == (6, 2)
    assert set(task.local.val.labels.tolist()) == {0, 1}
    names = {side.name(index) for side in (task.local.train, task.local.val) for index in range(len(side))}
    assert len(names) == 8
    for file in (images / "l/train").glob("*/[1-3].png"):
        file.unlink()
    with pytest.raises(TaskError, match=r"no class has two samples.* give local\.val"):
        load({"local.val": None})


def test_the_model_section_becomes_a_model_spec(images: Path, load: Load) -> None:
    (images / "net.py").write_text("def build(): ...")
    model = load(
        {
            "model.factory": "net.py:build",
            "model.weights": "weights.pth",
            "model.arguments.width": 2,
            "model.arguments.depths": [1, 2],
            "model.pretrain.epochs": 3,
            "model.pretrain.learning_rate": 1,
        }
    ).model
    assert model.factory == f"{images / 'net.py'}:build"
    assert model.weights == str(images / "weights.pth")
    assert model.arguments == (("depths", (1, 2)), ("width", 2))
    assert model.pretrain == Pretrain(3, 1.0, 64)
    assert isinstance(hash(model), int)


def test_a_published_model_brings_its_input(write: Write, images: Path) -> None:
    (images / "vit").mkdir()
    (images / "vit" / "config.json").write_text("{}")
    asked, brought = list[ModelSpec](), InputDefaults(64, 72, (0.5,), (0.25,))

    def defaults_of(model: ModelSpec) -> InputDefaults:
        asked.append(model)
        return brought

    left_out = {"input.size": None, "input.resize": None, "input.mean": None, "input.std": None, "model.weights": None}
    path = write({"model.factory": "hf:vit", "model.output": "logits", **left_out})
    task = open_task(str(path), defaults_of=defaults_of)
    assert task.input == InputSpec("images", 64, 72, (0.5,), (0.25,))
    assert asked == [task.model]
    assert (task.model.source, task.model.name) == (("hf", str(images / "vit")), "vit")
    before = task.fingerprint()
    (images / "vit" / "config.json").write_text("{ }")
    assert open_task(str(path), defaults_of=defaults_of).fingerprint() != before
    given = open_task(str(write({"model.factory": "timm:resnet18.a1_in1k"})), defaults_of=defaults_of)
    assert given.input.size == 6
    assert given.model.factory == "timm:resnet18.a1_in1k"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.factory": "timm:no such"}, r"model\.factory must have a name after timm:, got 'timm:no such'"),
        ({"model.factory": "hf:./gone"}, r"gone is no folder of a model, as it holds no config\.json"),
        ({"model.factory": "hf:gone"}, r"gone is no folder of a model.*A model of the hub has an owner: hf:OWNER/NAME"),
        ({"model.weights": "gone.pth"}, r"model\.weights: no such file .*gone\.pth"),
        ({"model.weights": "sub/gone"}, r"model\.weights: no such file"),
        ({"model.factory": "torchvision.models"}, "model.factory must be module:callable .*got 'torchvision.models'"),
        ({"model.factory": "net.py:build"}, r"model\.factory: no such file .*net\.py"),
        ({"local.train": "l/trian"}, r"l/trian: no such file or folder for the train data: check the path"),
        ({"local.train": "weights.pth"}, r"weights\.pth: images must be in an \.npz, .* got '\.pth'"),
        (
            {"local.trian": "l/train"},
            r"unknown key 'local\.trian' \(did you mean 'train'\?\); keys of \[local\]: kind, ",
        ),
        ({"loacl.kind": "images"}, r"unknown key 'loacl' \(did you mean 'local'\?\)"),
        ({"globl.kind": "images"}, r"unknown key 'globl' \(did you mean 'global'\?\)"),
        (
            {"model.pretrain.epoch": 1},
            r"'model\.pretrain\.epoch' \(did you mean 'epochs'\?\); keys of \[model\.pretrain\]",
        ),
        ({"local.train": None}, r"local\.train is missing: add it"),
        ({"local.kind": "image"}, r"kind must be one of arrays, .*, got 'image' \(did you mean 'images'\?\): "),
        ({"input.size": "big"}, r"input\.size: input should be a valid integer, got 'big'"),
        ({"input.size": None}, r"input\.size is missing"),
        ({"input.resize": 3}, r"input\.resize must be at least input\.size = 6, got 3"),
        ({"input.mean": None}, r"input\.mean must have 1 or 3 values for images, got \[\]"),
        ({"input.std": [0.0]}, r"input\.std\.0: input should be greater than 0, got 0\.0"),
        (
            {"local.labels": "none"},
            r'local\.labels = "none" requires \[global\], as it says what the model predicts',
        ),
        ({"local.kind": "arrays", "input.size": None}, r'kind "arrays" is read from an \.npz'),
        ({"local.val": "l/train"}, r"is both train and val"),
        (
            {"augment.ops": ["flip", "brightness"]},
            r"augment\.ops: 'brightness' changes values of pixels, and stored features cannot",
        ),
        ({"augment.ops": ["flop"]}, r"augment\.ops: no augmentation 'flop' \(did you mean 'flip'\?\)"),
        ({**GLOBAL, "global.kind": "arrays"}, r"global\.kind = 'arrays' and local\.kind = 'images' must agree"),
    ],
)
def test_a_mistake_in_the_task_file_is_reported_in_one_line(
    images: Path, load: Load, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        load(changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("part.toml", r"local is missing: add the section \[local\]"),
        ("torn.toml", r"torn\.toml: not valid TOML \(.*line 2"),
        ("gone.toml", r"gone\.toml: cannot be read \(No such file"),
        ("folder.toml", r"folder\.toml: cannot be read \(Is a directory"),
        ("x.pth", r"a task must be a \.toml file or file\.py:function, got '\.pth'"),
        ("gone.py:build", r"gone\.py: no such file; it must define the function 'build'"),
    ],
)
def test_a_file_that_is_no_task_is_reported(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "part.toml").write_text('model.factory = "m:build"')
    (tmp_path / "torn.toml").write_text("[model]\nfactory = \n")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "x.pth").touch()
    with pytest.raises(TaskError, match=message):
        open_task(str(tmp_path / name))


def test_a_built_in_is_found_and_a_misspelt_one_is_reported_with_the_nearest() -> None:
    assert open_task("digits", {"digits": digits}).name == "digits"
    with pytest.raises(TaskError, match=r"no task 'digit' \(did you mean 'digits'\?\)"):
        open_task("digit", {"digits": digits})


def test_a_function_in_a_python_file_gives_a_task(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from tuner.task import digits\ndef build():\n    return digits()\n")
    assert open_task(f"{tmp_path}/mine.py:build").name == "digits"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(): return 3", r"mine\.py:build must return a tuner\.Task, got int"),
        ("def biuld(): ...", r"no function 'build' in it \(did you mean 'biuld'\?\)"),
        ("def build():\n    1 / 0", r"mine\.py:2 raised ZeroDivisionError: division by zero"),
        ("x = 1\ndef build(:", r"mine\.py:2 raised SyntaxError"),
        ("import no_such_module_here", r"mine\.py:1 raised ModuleNotFoundError"),
    ],
)
def test_a_python_task_that_fails_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(TaskError, match=message):
        open_task(f"{tmp_path}/mine.py:build")


FILE = Path("/nowhere/project/task.toml")


def test_variables_expand_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/data")
    assert expand({"a": ["${PLACE}/x", 3], "b": {"c": "$PLACE ${PLACE}"}}, FILE) == {
        "a": ["/data/x", 3],
        "b": {"c": "$PLACE /data"},
    }


def test_a_default_replaces_an_unset_or_empty_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET", raising=False)
    monkeypatch.setenv("EMPTY", "")
    assert expand("${UNSET:-a}${EMPTY:-b}${EMPTY}${UNSET:-}", FILE) == "ab"
    with pytest.raises(TaskError, match=r"\$\{UNSET\} is not set.*export UNSET=.*\$\{UNSET:-default\}"):
        expand("${UNSET}", FILE)


def test_the_data_variable_defaults_to_shared_data_beside_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNER_DATA", raising=False)
    (tmp_path / "shared/data").mkdir(parents=True)
    file = tmp_path / "project/examples/one/task.toml"
    assert expand("${TUNER_DATA}/x", file) == f"{tmp_path}/shared/data/x"
    with pytest.raises(TaskError, match="TUNER_DATA"):
        expand("${TUNER_DATA}", FILE)
    monkeypatch.setenv("TUNER_DATA", "/elsewhere")
    assert expand("${TUNER_DATA}/x", file) == "/elsewhere/x"
