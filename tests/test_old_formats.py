"""Runs and bundles made by commit 02e8440 still show, export, predict, apply, train again and continue.

``tests/fixtures/02e8440`` holds them, each with what that commit printed of it: digits, digits with exits, digits grown
from nothing, and signals of four channels (made up, so that they are nobody's) on a LeNet grown from the given one. Of
their ONNX files the exporter's notes on source lines were left out, and the hashes in ``bundle.json`` made anew.
"""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tuner
from tests.pretrained import with_weights
from tuner.cli.app import call
from tuner.plan.toml import from_toml
from tuner.results.folder import JOURNAL, TRIALS
from tuner.runtime import Bundle, ExitsTrainer, Personaliser, Trainer
from tuner.task import Task

OLD = Path(__file__).parent / "fixtures" / "02e8440"
NAMES = ("digits", "exits", "grown", "signals")
PICKS = {"digits": "3", "exits": "1", "grown": "3", "signals": "2"}


@pytest.fixture(autouse=True)
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of the fixtures, with the weights that commit had pretrained."""
    folder = tmp_path / "old"
    shutil.copytree(OLD, folder)
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(tmp_path / "cache")))
    monkeypatch.chdir(folder)
    return folder


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert call([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def task_of_signals() -> Task:
    made = importlib.util.spec_from_file_location("old_signals", OLD / "signals.py")
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    task: Task = module.task()
    return task


def without_clock(values: Any) -> Any:
    """Leave out what a clock gives and nobody expects twice."""
    if isinstance(values, dict):
        return {name: without_clock(value) for name, value in values.items() if name != "seconds"}
    return [without_clock(value) for value in values] if isinstance(values, list) else values


def shared(values: Any, expected: Any) -> Any:
    """Leave out what that commit did not know."""
    if isinstance(values, dict) and isinstance(expected, dict):
        return {name: shared(values[name], one) for name, one in expected.items() if name in values}
    if isinstance(values, list) and isinstance(expected, list) and len(values) == len(expected):
        return [shared(value, one) for value, one in zip(values, expected, strict=True)]
    return values


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_is_shown_as_it_was(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = json.loads(Path(name, "show.json").read_text())
    assert shared(printed(["show", f"{name}/run"], capsys), expected) == expected


@pytest.mark.parametrize("name", NAMES)
def test_an_old_bundle_predicts_as_it_did(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = json.loads(Path(name, "predict.json").read_text())["predictions"]
    files = [prediction["file"] for prediction in expected]
    assert len(files) >= 4
    predictions = printed(["predict", f"{name}/bundle", *files], capsys)["predictions"]
    for prediction, wanted in zip(without_clock(predictions), without_clock(expected), strict=True):
        assert prediction.pop("probability") == pytest.approx(wanted.pop("probability"), abs=1e-5)
        windows, others = prediction.pop("windows", []), wanted.pop("windows", [])
        for window, other in zip(windows, others, strict=True):
            assert window.pop("probability") == pytest.approx(other.pop("probability"), abs=1e-5)
            assert window == other
        assert prediction == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_is_exported_to_the_same_weights_and_plan(name: str, old: Path) -> None:
    run = tuner.Run.open(old / name / "run", task_of_signals() if name == "signals" else None)
    trainable = name in {"digits", "exits"}
    out = tuner.export(run, old / "again", PICKS[name], trainable=trainable)
    before = old / name / "bundle"
    written, old_text = ((folder / "plan.toml").read_text() for folder in (out, before))
    assert from_toml(written) == from_toml(old_text)
    assert set(old_text.splitlines()) <= set(written.splitlines())
    weights, expected = (load_file(folder / "weights.safetensors") for folder in (out, before))
    assert weights.keys() == expected.keys()
    assert all(np.array_equal(weights[key], expected[key]) for key in expected)
    keys = [Bundle.open(folder).info.to_dict().keys() for folder in (out, before)]
    assert keys[0] - {"plugins"} == keys[1]  # those of that commit do not record their plugins


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "exits", "grown"])
def test_an_old_bundle_is_applied(name: str, old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = json.loads(Path(name, "apply.json").read_text())
    made = printed(["apply", f"{name}/bundle", "digits", "again"], capsys)
    assert made["sentence"] == expected["sentence"]
    for values in ("trial", "from_pixels"):
        for domain in ("local_accuracy", "global_accuracy"):
            accuracy, before = (one["scores"][values][domain] for one in (made, expected))
            # each exit has a temperature of its own by now, and thresholds follow: no worse, on digits better
            assert accuracy == pytest.approx(before, abs=0.02) or (name == "exits" and accuracy > before)
    assert Bundle.open(old / "again").info.parent == Bundle.open(old / name / "bundle").identity


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "exits"])
def test_an_old_bundle_trains_again_on_the_base_package(name: str, old: Path) -> None:
    expected = json.loads(Path(name, "train.json").read_text())
    with np.load(old / "inputs" / "digits-to-learn.npz") as file:
        inputs, labels = list(file["x"]), [str(label) for label in file["y"]]
    trainer = (ExitsTrainer if name == "exits" else Trainer)(old / name / "bundle", threads=1, seed=0)
    assert trainer.before == pytest.approx(expected["before_global"])
    trainer.add(inputs, *(() if name == "exits" else (labels,)))  # without labels the final head teaches the exits
    losses = [np.mean(loss) for loss in trainer.train(epochs=2)]
    assert losses == pytest.approx([np.mean(loss) for loss in expected["losses"]], rel=1e-4)
    assert trainer.global_accuracy() == pytest.approx(expected["after_global"], abs=0.02)
    saved = trainer.save(old / "learnt")
    predictions = Personaliser(saved).predict_files(sorted((old / "inputs").glob("digit-*.npy")))
    for prediction, (label, probability, _) in zip(predictions, expected["predictions"], strict=True):
        assert prediction.label == label
        if name != "exits":  # of which each has a temperature of its own by now
            assert prediction.probability == pytest.approx(probability, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "space", "options"), [
    ("digits", "digits", ["--trials", "5"]),
    ("exits", "exits", ["--trials", "4", "--seed", "1"]),
    ("grown", "growth", ["--trials", "5"]),
])  # fmt: skip
def test_an_old_run_continues(
    name: str, space: str, options: list[str], old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads(Path(name, "show.json").read_text())["trials"]
    out = ["--out", f"{name}/run", "--resume"]
    after = printed(["run", "digits", "--space", f"spaces/{space}.toml", "--deterministic", *options, *out], capsys)
    assert shared(after["trials"][: len(before)], before) == before
    assert len(after["trials"]) > len(before)
    assert len((old / name / "run" / TRIALS).read_text().splitlines()) == len(after["trials"])
    assert (old / name / "run" / JOURNAL).is_file()
