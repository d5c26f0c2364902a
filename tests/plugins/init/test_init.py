"""`tuner init`: a folder of photos is looked at, and a task file is written that loads and says what was found."""

import json
import os
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.cli.tiny_task import NET, SPACE, draw
from tests.task.data.test_sessions import MINUTE, TAKEN, photo
from tuner.cli.app import call
from tuner.errors import TaskError
from tuner.task import open_task
from tuner_init.prepare import init

REAL = Path(os.environ["TUNER_DATA"])


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.delenv("TUNER_DATA", raising=False)
    monkeypatch.setattr("tuner_choose.places.installed", tuple)  # no package has weights
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten hats and five caps to train on, two of each to validate with."""
    folder = tmp_path / "mine"
    for number in range(10):
        draw(folder / "train" / "hat" / f"{number}.png", number)
    for number in range(5):
        draw(folder / "train" / "cap" / f"{number}.png", 20 + number)
    for at, name in enumerate(("hat", "cap")):
        for number in range(2):
            draw(folder / "val" / name / f"{number}.png", 40 + 10 * at + number)
    return folder


@pytest.fixture
def weights(tmp_path: Path) -> str:
    file = tmp_path / "weights.pth"
    file.write_bytes(b"weights")
    return str(file)


def loaded_sizes(file: Path) -> tuple[int, int]:
    task = open_task(str(file))
    return len(task.local.train), len(task.local.val)


def test_the_file_loads_and_says_what_was_found(photos: Path, weights: str) -> None:
    prepared = init(photos, weights=weights)
    assert loaded_sizes(prepared.task) == (15, 4)
    assert {count.name: (count.train, count.val) for count in prepared.survey.classes} == {
        "hat": (10, 2),
        "cap": (5, 2),
    }
    text = prepared.task.read_text()
    assert "# 15 photos to train on and 4 to validate with. To train on: cap 5, hat 10" in text
    content = tomllib.loads(text)
    assert content["name"] == "mine"
    assert content["local"]["train"] == "mine/train"  # below the file's folder: relative
    assert content["model"]["weights"] == weights
    assert "skip_unreadable" not in content["input"]


def test_class_folders_have_the_validation_photos_next_to_train_or_a_stated_holdout(photos: Path, weights: str) -> None:
    for given in ("mine/train", "mine"):
        assert init(Path(given), weights=weights, force=True).val == Path("mine/val")
    classes = photos.rename(photos.with_name("whole")) / "train"
    classes = classes.rename(classes.with_name("shop"))
    prepared = init(classes, weights=weights, force=True)
    assert (prepared.name, prepared.val) == ("shop", None)
    assert loaded_sizes(prepared.task) == (12, 3)
    assert "a fifth of each class is held out" in prepared.task.read_text()


def test_a_class_may_be_called_train(tmp_path: Path, weights: str) -> None:
    for at, name in enumerate(("train", "plane")):
        for number in range(3):
            draw(tmp_path / "toys" / name / f"{number}.png", 10 * at + number)
    assert [count.name for count in init(tmp_path / "toys", weights=weights).survey.classes] == ["plane", "train"]


def test_what_is_wrong_with_photos_is_found(photos: Path, weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(photos / "train/hat/0.png", photos / "val/hat/again.png")
    shutil.copy(photos / "train/hat/1.png", photos / "train/cap/wrong.png")
    shutil.copy(photos / "train/hat/2.png", photos / "train/hat/copy.png")
    (photos / "train/cap/broken.jpg").write_bytes(b"\xff\xd8 no photo")
    for at, part in enumerate(("train", "train", "val")):
        photo(photos / part / f"cap/shot{at}.jpg", 100 + at, {TAKEN: f"{MINUTE}:0{at}"})
    assert call(["init", str(photos), "--weights", weights]) == 0
    output = capsys.readouterr().out
    for line in (
        "warning: 1 photo is in train and also in val or test, so scores would be too good; remove one of each: ",
        f": {photos}/train/hat/0.png = {photos}/val/hat/again.png",
        "warning: 1 photo is in two classes; remove the wrong one: ",
        f": {photos}/train/cap/wrong.png = {photos}/train/hat/1.png",
        "copies of another photo in the same class of train: 1",
        "warning: fewer than 10 photos to train on: cap",
        "warning: 1 of the 6 samples of local.val was taken in the same session as samples of local.train (1 session)",
    ):
        assert line in output
    assert f"warning: left out, as it cannot be read: {photos}/train/cap/broken.jpg: " in output
    assert tomllib.loads(Path("task.toml").read_text())["input"]["skip_unreadable"] is True
    assert loaded_sizes(Path("task.toml")) == (19, 6)


def test_json(photos: Path, weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["init", str(photos), "--weights", weights, "--out", "my.toml", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["task"] == "my.toml"
    assert content["survey"]["classes"][0] == {"name": "cap", "train": 5, "val": 2, "test": 0}
    assert content["survey"]["short_sides"] == [16, 16, 16]


def test_nothing_is_replaced_silently(photos: Path, weights: str) -> None:
    Path("task.toml").write_text("mine")
    with pytest.raises(TaskError, match=r"task\.toml exists already: give another file with --out, or replace it with"):
        init(photos, weights=weights)
    assert Path("task.toml").read_text() == "mine"
    init(photos, weights=weights, force=True)
    assert loaded_sizes(Path("task.toml")) == (15, 4)


def test_folders_that_hold_no_classes(photos: Path, weights: str) -> None:
    with pytest.raises(TaskError, match="holds 10 photos, but no folder for each class: put the photos of each class"):
        init(photos / "train" / "hat", weights=weights)
    with pytest.raises(TaskError, match=r"missing: no such folder: give the folder of your photos"):
        init(Path("missing"), weights=weights)
    Path("flat").mkdir()
    np.save("flat/3.npy", np.zeros((2, 50), np.float32))
    way_out = r"holds 1 files, but no folder .* as hat/1\.npy, or list them with their classes in a \.csv"
    with pytest.raises(TaskError, match=way_out):
        init(Path("flat"))
    Path("empty").mkdir()
    with pytest.raises(TaskError, match=r"empty: holds no photos, sounds or recordings \(\.aif, \.aifc, "):
        init(Path("empty"), weights=weights)
    Path("rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TaskError, match=r"no column seems to hold the labels: name it, as 'rows\.csv#COLUMN'"):
        init(Path("rows.csv"))
    with pytest.raises(TaskError, match=r"--kind must be one of .*, got 'signal' \(did you mean 'signals'\?\)"):
        init(photos, kind="signal")
    assert not Path("task.toml").exists()


def test_weights_are_those_on_this_device(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner_init.prepare.default_data", lambda _: None)
    with pytest.raises(TaskError, match=r"no weights of mobilenet_v2 are on this device: give --weights FILE"):
        init(photos)
    fetched = tmp_path / "torch/hub/checkpoints/mobilenet_v2-b0353104.pth"
    fetched.parent.mkdir(parents=True)
    fetched.write_bytes(b"")
    assert init(photos).weights == str(fetched)
    assert init(photos, weights="IMAGENET1K_V1", force=True).cautions == ()
    fetched.unlink()
    prepared = init(photos, weights="IMAGENET1K_V1", out=Path("my task.toml"))
    assert prepared.weights == "IMAGENET1K_V1"
    assert prepared.cautions[-1].endswith("not on this device: tuner run 'my task.toml' --time 10m fetches them once")
    with pytest.raises(TaskError, match=r"--weights net\.pth: no such file"):
        init(photos, weights="net.pth", force=True)


def test_models(photos: Path, weights: str) -> None:
    with pytest.raises(TaskError, match=r"torchvision has no 'resnet81' \(did you mean 'resnet18'\?\)"):
        init(photos, model="resnet81", weights=weights)
    assert init(photos, model="resnet18", weights=weights).model == "torchvision.models:resnet18"
    Path("net.py").write_text(NET)
    prepared = init(photos, model="net.py:build", force=True)
    assert (prepared.model, prepared.weights) == (f"{Path.cwd()}/net.py:build", None)


def test_global_photos_come_with_their_classes_file(photos: Path, weights: str, tmp_path: Path) -> None:
    for number in range(2):
        draw(tmp_path / "known" / "train" / "n01" / f"{number}.png", 90 + number)
        draw(tmp_path / "known" / "val" / "n01" / f"{number}.png", 95 + number)
    prepared = init(photos, weights=weights, global_=Path("known"))
    assert (prepared.global_classes, prepared.classes_file) == (1, None)
    (tmp_path / "known" / "classes.tsv").write_text("wnid\tindex\tname\nn01\t7\tgoldfish\n")
    for given, looks in (("known", True), ("known/train", False)):
        prepared = init(photos, weights=weights, global_=Path(given), force=True, dry_run=looks)
        assert prepared.classes_file == Path("known/classes.tsv")
    assert prepared.cautions[-1].startswith("warning: the untouched model could not be scored on the global data: ")
    task = open_task("task.toml")
    assert (task.labels, task.head_rows) == (("goldfish", "cap", "hat"), (7,))


def test_names_that_no_task_file_can_hold(photos: Path, weights: str) -> None:
    for name, rule in (("a${HOME}", r"holds \$\{"), ("\udcff", "is not UTF-8")):
        with pytest.raises(TaskError, match=rule):
            init(photos.rename(photos.with_name(name)) / "train", weights=weights)
        Path(name).rename(photos)


def test_a_run_on_photos_writes_the_task_next_to_it(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks: list[str] = []

    def noted(task: str, **_: object) -> None:
        tasks.append(task)
        raise TaskError("enough")

    monkeypatch.setattr("tuner.commands.tune.run.run", noted)
    monkeypatch.setattr("tuner_init.prepare.default_data", lambda _: tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mobilenet_v2.pth").write_bytes(b"")
    for _ in range(2):  # the second time, the file is used as it is
        assert call(["run", str(photos)]) == 1
    error = capsys.readouterr().err
    assert error.count("2 classes, 15 photos to train on") == 1
    assert error.count("task: runs/mine.toml") == 2
    assert call(["run", "mine", "--out", "here"]) == 1
    assert tasks == ["runs/mine.toml", "runs/mine.toml", "here.toml"]
    assert loaded_sizes(Path("runs/mine.toml")) == loaded_sizes(Path("here.toml")) == (15, 4)
    shutil.copytree(photos, tmp_path / "other" / "mine")
    assert call(["run", "other/mine"]) == 1
    assert "runs/mine.toml exists, and is not the task of other/mine" in capsys.readouterr().err
    assert call(["run", "cache"]) == 1
    assert "tuner: no task.toml in cache; cache: holds no photos" in capsys.readouterr().err


@pytest.mark.slow
def test_from_photos_to_predictions(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text(NET)
    Path("space.toml").write_text(SPACE)
    assert call(["init", str(photos), "--model", "net.py:build"]) == 0
    assert call(["run", "--space", "space.toml", "--trials", "1", "--time", "10m", "--out", "run"]) == 0
    assert call(["export", "run", "bundle"]) == 0
    capsys.readouterr()
    assert call(["predict", "bundle", str(photos / "val"), "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 4


@pytest.mark.data
def test_the_clothing_photos() -> None:
    prepared = init(REAL / "images/local/train", global_=REAL / "images/global")
    assert loaded_sizes(prepared.task) == (1192, 347)
    assert (len(prepared.survey.classes), prepared.survey.leaks, prepared.survey.unreadable) == (10, (), ())
    assert prepared.global_classes == 200
