"""Bad input: one clear line with the rule, the value and the way out, exit 1, and nothing lost."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tuner.cli import call
from tuner.errors import BudgetError, BundleError
from tuner.folders import open_store
from tuner.runtime.bundle import placed

NET = """
import torch
from torch import nn

def build(outputs=2):
    def unit(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU())
    return nn.Sequential(unit(3, 8), unit(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, outputs))

class Tangled(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.gate = nn.Linear(1, 1)
        self.head = nn.Linear(3 * 16 * 16, outputs)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x.mean((1, 2, 3)).unsqueeze(1)))
        return self.head(x.flatten(1)) * gate

def tangled(outputs=2):
    return Tangled(outputs)
"""
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[limits]
time = "60s"
[knobs.recipe]
epochs = [1, 2]
batch_size = 8
micro_batches = 1
"""
Said = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tuner.tune.process_started", time.monotonic)  # --time counts from the call, not from pytest's


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task on tiny pictures: it knows cat and dog, the user adds hat."""
    for split in ("global/train", "global/val", "local/train", "local/val"):
        for at, name in enumerate(("cat", "dog") if split.startswith("global") else ("hat",)):
            for number in range(6):
                draw(tmp_path / split / name / f"{number}.png", at * 6 + number + len(split) * 12)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "space.toml").write_text(SPACE)
    return write(tmp_path, "")


def draw(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (16, 16, 3), np.uint8)).save(path)


def write(folder: Path, more: str, factory: str = "net.py:build", local: str = "local/train") -> Path:
    path = folder / "task.toml"
    path.write_text(
        f"""
        [model]
        factory = "{factory}"
        {more}
        [global]
        kind = "images"
        train = "global/train"
        val = "global/val"
        [local]
        kind = "images"
        train = "{local}"
        val = "local/val"
        [input]
        size = 16
        mean = [0.5]
        std = [0.5]
        """
    )
    return path


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Said:
    """Call the command line; return its exit code and its last line on stderr, which it checks."""

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = call([str(one) for one in arguments])
        error = capsys.readouterr().err
        assert "Traceback" not in error
        lines = error.splitlines()
        if code:
            assert lines[-1].startswith("tuner: ")
            assert sum(line.startswith("tuner: ") for line in lines) == 1
        return code, lines[-1] if lines else ""

    return run


@pytest.fixture
def tune(said: Said, tmp_path: Path) -> Said:
    """Run the task in `tmp_path / "run"`."""

    def run(task: object, *arguments: object) -> tuple[int, str]:
        return said("run", task, "--space", tmp_path / "space.toml", "--out", tmp_path / "run", *arguments)

    return run


# Told before any process starts.


def test_a_task_that_is_not_there(tune: Said, task: Path, tmp_path: Path) -> None:
    code, line = tune(tmp_path / "none.toml")
    assert code == 1
    assert "none.toml: cannot be read (No such file" in line
    assert tune("digit")[1].startswith("tuner: no task 'digit' (did you mean 'digits'?): give a task.toml")
    assert not (tmp_path / "run").exists()


def test_data_that_is_not_there(tune: Said, task: Path) -> None:
    code, line = tune(write(task.parent, "", local="local/nowhere"))
    assert code == 1
    assert "local/nowhere: no such file or folder, wanted as train data: check the path in the task file" in line


def test_data_that_cannot_be_read(tune: Said, task: Path) -> None:
    (task.parent / "broken.csv").write_bytes(b"path,label\n\xff\xfe")
    code, line = tune(write(task.parent, "", local="broken.csv"))
    assert code == 1
    assert "broken.csv: not a CSV manifest in UTF-8" in line
    assert "save it as CSV with header path,label" in line


def test_a_class_folder_without_images(tune: Said, task: Path) -> None:
    (task.parent / "local/train/scarf").mkdir()
    code, line = tune(task)
    assert code == 1
    assert "local/train/scarf: no images (" in line
    assert "add some or remove it" in line


def test_an_unknown_key_names_the_nearest(tune: Said, task: Path) -> None:
    code, line = tune(write(task.parent, 'wieghts = "x.pth"'))
    assert code == 1
    assert "unknown key 'model.wieghts' (did you mean 'weights'?)" in line
    space = task.parent / "space.toml"
    space.write_text(SPACE.replace("[limits]", "[limit]"))
    assert "limit: unknown key (did you mean 'limits'?)" in tune(task)[1]
    space.write_text(SPACE.replace('time = "60s"', 'tme = "60s"'))
    assert "limits.tme: unknown limit (did you mean 'time'?)" in tune(task)[1]
    space.write_text(SPACE.replace('"cache"]', '"cahce"]'))
    assert "there is no strategy 'cahce' (did you mean 'cache'?)" in tune(write(task.parent, ""))[1]


def test_a_space_that_is_not_there(said: Said, task: Path) -> None:
    code, line = said("run", task, "--space", "smok")
    assert code == 1
    assert "there is no search space 'smok' (did you mean 'smoke'?): give a file, or one of " in line


@pytest.mark.parametrize(
    ("arguments", "wants"),
    [
        (("--time", "soon"), "--time wants a duration such as 90s, 5m or 1h30m, but it is 'soon'"),
        (("--time", "0s"), "--time is above zero, but it is '0s'"),
        (("--memory", "12"), "--memory wants a size such as 512MB or 1GiB, but it is '12'"),
        (("--trials", "0"), "--trials wants a whole number of at least 1, but it is '0'"),
        (("--backend", "torhc"), "there is no backend 'torhc' (did you mean 'torch'?)"),
    ],
)
def test_limits_that_are_none(tune: Said, task: Path, arguments: tuple[str, str], wants: str) -> None:
    code, line = tune(task, *arguments)
    assert code == 1
    assert wants in line


def test_a_time_for_a_run_without_clocks(tune: Said, task: Path) -> None:
    code, line = tune(task, "--deterministic", "--time", "1s")
    assert code == 1
    assert line.endswith("but --time 1s is given: leave one of the two out")
    assert not (task.parent / "run").exists()


def test_a_run_that_would_never_end(tune: Said, task: Path) -> None:
    (task.parent / "space.toml").write_text(SPACE.replace('time = "60s"', ""))
    code, line = tune(task)
    assert code == 1
    assert "a run ends by --time or by --trials, but neither is given: add one" in line


@pytest.mark.parametrize(
    ("arguments", "wants"),
    [
        (("show", "{}"), "is not a run: it has no run.json; `tuner run TASK --out "),
        (("export", "{}", "{}/out"), "is not a run: it has no run.json"),
        (("predict", "{}", "x.png"), "is not a bundle: it has no bundle.json; `tuner export RUN OUT` makes one"),
        (("describe", "{}/none.toml"), "none.toml: cannot be read"),
    ],
)
def test_folders_that_are_something_else(said: Said, tmp_path: Path, arguments: tuple[str, ...], wants: str) -> None:
    code, line = said(*(one.format(tmp_path) for one in arguments))
    assert code == 1
    assert wants in line


@pytest.mark.parametrize("under", ["", "/below"])  # a file is where a folder should be, or where its parent should be
@pytest.mark.parametrize("option", ["--out", "--store"])
def test_files_where_folders_should_be(said: Said, task: Path, option: str, under: str) -> None:
    (task.parent / "file").write_text("mine")
    where = f"{task.parent}/file{under}"
    rest = () if option == "--out" else ("--out", task.parent / "run")
    code, line = said("run", task, "--space", task.parent / "space.toml", *rest, option, where)
    assert code == 1
    assert f"{where} cannot be a folder of tuner's (" in line
    assert (task.parent / "file").read_text() == "mine"


def test_a_file_where_the_cache_should_be(tune: Said, said: Said, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (task.parent / "file").write_text("mine")
    monkeypatch.setenv("TUNER_CACHE", str(task.parent / "file"))
    for code, line in (tune(task), said("store", "list"), said("forget", "digits")):
        assert code == 1
        assert f"{task.parent}/file cannot be a folder of tuner's (File exists): give another place" in line


def test_a_bundle_where_something_else_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    for out, wants in (
        ("file", "file is not a folder: give another folder"),
        ("full", "full is not empty: give another folder"),
        ("file/below", r"file/below cannot be made \(Not a directory\): give another folder"),
    ):
        with pytest.raises(BundleError, match=wants), placed(tmp_path / out):
            pytest.fail("this would train")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "full"}


def test_a_cap_that_the_store_cannot_keep_is_named(tmp_path: Path) -> None:
    (tmp_path / "store" / "kinds").mkdir(parents=True)
    (tmp_path / "store" / "kinds" / "model-1").write_text("torch-fp32")
    with pytest.raises(BudgetError, match=r"^--storage 1\.0 MB is less than what has to stay in .*store: give more$"):
        open_store(tmp_path / "store", 0, "--storage 1.0 MB")


def test_a_run_that_exists_is_left_alone_without_resume(tune: Said, task: Path) -> None:
    run = task.parent / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "journal.log").write_text("precious")
    code, line = tune(task)
    assert code == 1
    assert "holds a run already: add --resume to go on with it, or give another --out" in line
    assert (run / "journal.log").read_text() == "precious"


def test_a_folder_with_something_else_in_it_is_left_alone(tune: Said, task: Path) -> None:
    (task.parent / "run").mkdir()
    for name in ("journal.log", "letter.txt"):
        (task.parent / "run" / name).write_text("dear")
        for more in ((), ("--resume",)):
            code, line = tune(task, *more)
            assert code == 1
            assert "is not empty and is not a run: give another --out" in line
    assert {path.name: path.read_text() for path in (task.parent / "run").iterdir()} == {
        "journal.log": "dear",
        "letter.txt": "dear",
    }


def test_a_resumed_run_whose_task_has_changed_is_refused(tune: Said, task: Path) -> None:
    run = task.parent / "run"
    run.mkdir()
    identity = {"task": "another", "space": "another", "seed": 0, "deterministic": False}
    (run / "run.json").write_text(json.dumps({"format": 1, "identity": identity}))
    code, line = tune(task, "--resume")
    assert code == 1
    assert "was made with another task and space: --resume goes on with the same one; give another --out" in line
    (run / "run.json").write_text(json.dumps({"format": 99}))
    assert "has run format 99, this version reads 1: update tuner" in tune(task, "--resume")[1]


# Told by a child, once the model is there.


@pytest.mark.slow
def test_an_image_that_is_not_one(tune: Said, task: Path) -> None:
    (task.parent / "local/train/hat/3.png").write_text("not a picture")
    code, line = tune(task, "--trials", "2")
    assert code == 1
    assert "local/train/hat/3.png: not an image that can be decoded (no known format): replace or remove it" in line
    draw(task.parent / "local/train/hat/3.png", 99)  # put right, the same command goes on in the same folder
    assert tune(task, "--trials", "1", "--resume")[0] in {0, 1}


@pytest.mark.slow
def test_weights_that_do_not_fit_and_the_same_folder_afterwards(tune: Said, task: Path) -> None:
    np.savez(task.parent / "weights.npz", a=np.zeros(3))
    import torch

    torch.save({"0.0.weight": torch.zeros(4, 3, 3, 3)}, task.parent / "weights.pth")
    code, line = tune(write(task.parent, 'weights = "weights.pth"'), "--trials", "1")
    assert code == 1
    assert "model.weights: '0.0.weight' is [8, 3, 3, 3] in the model, [4, 3, 3, 3] in " in line
    assert "use the factory and arguments the weights were trained with" in line
    code, line = tune(write(task.parent, ""), "--trials", "1")
    assert code == 0, line


@pytest.mark.slow
def test_an_unknown_knob_names_the_nearest(tune: Said, task: Path) -> None:
    (task.parent / "space.toml").write_text(SPACE + "\n[knobs.freeze]\ntrainable_block = 1\n")
    code, line = tune(task)
    assert code == 1
    assert "there is no knob 'freeze.trainable_block' (did you mean 'freeze.trainable_blocks'?)" in line


@pytest.mark.slow
def test_a_knob_that_wants_what_is_not_legal(tune: Said, task: Path) -> None:
    (task.parent / "space.toml").write_text(SPACE + "learning_rate = 1e6\n")
    code, line = tune(task)
    assert code == 1
    assert "recipe.learning_rate wants 1000000.0, but this model allows [1e-06, 1]" in line


@pytest.mark.slow
def test_a_budget_too_small_for_one_trial(tune: Said, task: Path) -> None:
    code, line = tune(task, "--time", "0.1s")
    assert code == 1
    assert "took longer than --time: give more" in line
    code, line = tune(task, "--memory", "1kB")
    assert code == 1
    assert "--memory 1.0 kB is too small to run the frozen prefix, which took " in line
    assert line.endswith(": give more")


@pytest.mark.slow
def test_a_model_without_a_cut_point_is_trained_whole(
    tune: Said, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(task.parent, "", factory="net.py:tangled")
    assert call(["describe", str(task), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["note"] == "the model has no inner cut point: only whole-model training is offered"
    assert len(described["blocks"]) == 1
    arguments = ["--space", str(task.parent / "space.toml"), "--trials", "2", "--out", str(task.parent / "run")]
    assert call(["run", str(task), *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert described["note"] in " ".join(captured.err.split())
    trials: list[dict[str, Any]] = json.loads(captured.out)["trials"]
    assert {trial["plan"]["split"] for trial in trials} == {0}
    assert all(trial["state"] == "done" for trial in trials)


@pytest.mark.slow
def test_training_that_diverges_fails_with_the_reason_and_no_trial_is_feasible(
    tune: Said, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = "learning_rate = 1.0\noptimiser = 'sgd'\nweight_decay = 0.1\n[knobs.freeze]\ntrainable_blocks = 3\n"
    (task.parent / "space.toml").write_text(SPACE.replace("epochs = [1, 2]", "epochs = [60, 61]") + wild)
    text = task.read_text().replace("std = [0.5]", "std = [1e-6]")
    task.write_text(text)
    code, line = tune(task, "--trials", "2")
    assert code == 1
    assert "no trial fits: failures stopped 2 of 2 trials; nearest miss: trial 0, the loss became " in line
    assert "lower recipe.learning_rate, which is 1" in line
    assert call(["show", str(task.parent / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"]["failed"] == 2
    assert shown["front"] == []
    assert "the loss became" in shown["trials"][0]["reason"]


@pytest.mark.slow
def test_no_feasible_trial_names_the_limit_and_the_nearest_miss(tune: Said, task: Path) -> None:
    code, line = tune(task, "--train-time", "0.0001s")
    assert code == 1
    assert "no trial fits: --train-time stopped 50 of 50 trials; nearest miss: trial " in line
    assert "--train-time: needs " in line
