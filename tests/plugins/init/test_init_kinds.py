"""`tuner init` on data of every form: the task file that it writes opens, with the network that it names."""

import csv
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from tests.cli.tiny_task import draw
from tuner.backends.torch.model.open.load import load
from tuner.cli.app import call
from tuner.errors import TaskError
from tuner.task import open_task
from tuner_init.layout import find_data
from tuner_init.prepare import init

GENERATOR = np.random.default_rng(0)


class Case(NamedTuple):
    """What a user types, and what the written task is."""

    data: str
    options: dict[str, str]
    kind: str
    shape: tuple[int, ...]
    samples: tuple[int, int, int]
    network: str


CASES = {
    "sounds": Case("sounds", {}, "audio", (1, 64, 96), (16, 4, 0), "yamnet_256"),
    "a recording a file": Case("windows", {}, "signals", (3, 50), (8, 2, 0), "lenet_1d"),
    "long recordings": Case("steps.csv", {}, "signals", (2, 100), (8, 2, 0), "lenet_1d"),
    "short recordings": Case("short.npz", {}, "signals", (2, 9), (16, 4, 0), "mlp"),
    "rows": Case("rows.csv", {}, "arrays", (4,), (24, 6, 0), "mlp"),
    "rows of another column": Case("odd.csv#group", {}, "arrays", (2,), (24, 6, 0), "mlp"),
    "arrays with all partitions": Case("digits.npz", {}, "arrays", (1, 28, 28), (12, 6, 4), "lenet_2d"),
    "Keras's names": Case("medical.npz", {}, "arrays", (1, 8, 8), (12, 6, 4), "build"),
    "two arrays": Case("loose", {}, "arrays", (5,), (16, 4, 6), "mlp"),
    "an ONNX file": Case("photos", {"model": "net.onnx"}, "images", (3, 24, 24), (8, 2, 0), "net.onnx"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write data of every form."""
    folder = tmp_path_factory.mktemp("data")
    for at, name in enumerate(("a", "b")):
        for part in ("sounds", "windows"):
            (folder / part / name).mkdir(parents=True)
        for number in range(5):
            signal = GENERATOR.normal(size=(50, 3))
            np.savetxt(folder / "windows" / name / f"{number}.csv", signal, delimiter=",")
            tone = (8000 * np.sin(np.arange(26_000) * (0.1 + at))).astype(np.int16)
            wavfile.write(folder / "sounds" / name / f"{number}.wav", 16_000, tone)
            draw(folder / "photos" / name / f"{number}.png", 20 * at + number)
    walk = np.cumsum(GENERATOR.normal(size=(1000, 2)), axis=0)
    _write(folder / "steps.csv", ["time", "x", "y", "activity"], ([at, *walk[at], at // 500] for at in range(1000)))
    rows = ([at, *GENERATOR.normal(size=4), "ab"[at % 2]] for at in range(30))
    _write(folder / "rows.csv", ["id", "q", "r", "s", "t", "class"], rows)
    _write(folder / "odd.csv", ["group", "q", "r"], (["ab"[at % 2], *GENERATOR.normal(size=2)] for at in range(30)))
    for name, side, keys in (
        ("digits", 28, ("x_train", "y_train", "x_val", "y_val", "x_test", "y_test")),
        ("medical", 8, ("train_images", "train_labels", "val_images", "val_labels", "test_images", "test_labels")),
    ):
        arrays: dict[str, Any] = {}
        for at, count in enumerate((12, 6, 4)):
            arrays[keys[2 * at]] = GENERATOR.integers(0, 255, (count, side, side), dtype=np.uint8)
            arrays[keys[2 * at + 1]] = np.arange(count) % 2
        np.savez(folder / f"{name}.npz", **arrays)
    np.savez(folder / "short.npz", x=GENERATOR.normal(size=(20, 2, 9)), y=np.arange(20) % 2)
    (folder / "loose").mkdir()
    for part, count in (("train", 20), ("test", 6)):
        np.save(folder / "loose" / f"X_{part}.npy", GENERATOR.normal(size=(count, 5)))
        np.save(folder / "loose" / f"y_{part}.npy", np.arange(count) % 2)
    convolution = torch.nn.Conv2d(3, 8, 3, 2)
    network = torch.nn.Sequential(
        convolution, torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4)
    )
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter itself
        torch.onnx.export(network.eval(), (torch.zeros(2, 3, 24, 24),), folder / "net.onnx", dynamo=True, verbose=False)
    return folder


def _write(file: Path, header: list[str], rows: object) -> None:
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])  # type: ignore[misc]  # any rows


@pytest.mark.parametrize("name", CASES)
def test_the_written_task_opens(folder: Path, name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TUNER_DATA", str(folder))
    prepared = init(Path(case.data), **case.options, force=True)  # type: ignore[arg-type]  # all are text
    task = open_task("task.toml")
    counts = tuple(len(samples) for _, samples in task.local.partitions())
    assert (prepared.kind, task.local.train.load(0).shape) == (case.kind, case.shape)
    assert (*counts, 0)[:3] == case.samples
    assert task.model.factory.endswith(case.network)
    assert not task.skipped
    opened = load(task)
    assert opened.chain is not None, "no cut: only whole-model training"
    with torch.inference_mode():
        assert opened.model(torch.from_numpy(task.batch(task.local.train, [0]))).shape == (1, 2)


def test_a_dry_run_looks_and_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert call(["init", "rows.csv", "--out", "none.toml", "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "rows.csv#class: 2 classes, 24 samples to train on, 6 to validate with" in output
    assert "rows are read as samples, labelled by the column 'class' (--kind signals: as the other)" in output
    assert not Path("none.toml").exists()
    assert call(["init", "rows.csv", "--out", "my task.toml", "--force"]) == 0
    output = capsys.readouterr().out
    assert "guessing among 2 classes would be right 50 % of the time; with 6 validation samples, a score" in output
    assert "tuner run 'my task.toml' --dry-run" in output


def test_what_init_cannot_take_is_said_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("several.npz", x_train=GENERATOR.normal(size=(8, 5)), y_train=GENERATOR.integers(0, 2, (8, 4)))
    Path("single.csv").write_text("x,label\n" + "1,a\n2,a\n3,a\n" * 5)
    Path("latin.csv").write_bytes(b"path,label\n\xe9.jpg,a\n")
    for name, rule in (
        ("several.npz", r"several\.npz: samples have several labels, and tuner init is for one label a sample"),
        ("single.csv", "single.csv: the only class is 'a': a single-label task needs at least two"),
        ("latin.csv", r"latin\.csv: cannot be read \(it is not UTF-8 text"),
    ):
        with pytest.raises(TaskError, match=rule):
            init(Path(name))


def test_a_manifest_may_quote_its_paths(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text('path,label\n"one, two.wav",a\n"three, four.wav",b\n')
    assert find_data(tmp_path / "list.csv").kind == "audio"


def test_tables_that_are_none(tmp_path: Path) -> None:
    for text, rule in (
        ("a,label\n1,x\n2\n", "row 3 must have 2 cells, as the first has"),
        ("a,label\n", "has no rows"),
        ("a,b,label\n1,red,x\n2,blue,y\n", r"row 2, column 'b' must be a number, got 'red'"),
        ("a,label\n1,x\nnan,y\n", "row 3 is not a finite number"),
    ):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(TaskError, match=rule):
            find_data(tmp_path / "t.csv")
