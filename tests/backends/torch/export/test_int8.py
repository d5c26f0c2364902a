"""Bundles whose frozen blocks compute in int8."""

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from tests.cli.printed import printed_json
from tests.pretrained import with_weights
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.export.whole import export
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import MODEL, WEIGHTS, new_folder, seal
from tuner.bundle.info import FORMAT
from tuner.cli.app import call
from tuner.errors import BundleError, PlanError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan
from tuner.plan.trial import TrialPlan, in_int8
from tuner.plugin.core import build_host
from tuner.runtime import Personaliser, Trainer
from tuner.runtime.train.files import OWN
from tuner.task.builtin import digits
from tuner.task.info import task_info

ABOUT: dict[str, Any] = {
    "format": FORMAT,
    "name": "digits",
    "labels": [str(digit) for digit in range(10)],
    "input": {"kind": "arrays"},
    "input_shape": [1, 8, 8],
    "loss": "single-label",
}
RUN = Path(__file__).parents[3] / "fixtures" / "digits" / "run"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """Export a trial of a recorded run."""
    folder = tmp_path_factory.mktemp("int8")
    with_weights(own_cache)
    shutil.copytree(RUN, folder / "run")
    asked = ["--no-refit", "--pick", "3", "--trainable", "--int8", "--int8-loss", "2", "--replay", "0"]
    assert call(["export", str(folder / "run"), str(folder / "bundle"), *asked]) == 0
    return folder / "bundle"


def opened() -> OpenTask:
    task = digits()
    return OpenTask(task, load(task), build_host().extensions("torch"), EagerSteps)


def with_outliers(blocks: int) -> OpenTask:
    """Scale a channel of some blocks' outputs by 10,000, and back in the next layer: the model computes the same."""
    here = opened()
    layers = [
        layer for layer in here.model.model.modules() if isinstance(layer, (torch.nn.Conv2d, torch.nn.BatchNorm2d))
    ]
    with torch.no_grad():
        for block in range(blocks):
            norm, following = layers[2 * block + 1], layers[2 * block + 2]
            for value in (norm.weight, norm.bias):
                assert value is not None
                value[0] *= 1e4
            following.weight[:, 0] *= 1e-4
    info = replace(here.model.info, fingerprint=f"outliers of {blocks}")
    return replace(here, model=here.model.with_info(info))


def plan_of(here: OpenTask, split: int = 3) -> TrialPlan:
    return TrialPlan(here.model.info, task_info(here.task), split=split, cache=CachePlan("cache", 8))


def given_tail(here: OpenTask, split: int, folder: Path) -> Path:
    state = {name: value.contiguous() for name, value in here.model.tail(split).state_dict().items()}
    save_file(state, folder / WEIGHTS)
    return folder / WEIGHTS


@pytest.mark.slow
def test_the_exported_model_computes_in_int8_and_both_precisions_are_shown(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed_json(capsys, "show", exported)
    before, after = shown["int8"]["float32"], shown["int8"]["int8"]
    assert before.keys() == after.keys() >= {"local_accuracy", "global_accuracy", "latency_seconds", "bytes"}
    assert all(abs(before[name] - after[name]) <= 0.02 for name in ("local_accuracy", "global_accuracy"))
    assert after["bytes"] < before["bytes"]
    assert after["bytes"] == sum(shown["bytes"].values())
    assert shown["scores"]["from_pixels"]["local_accuracy"] == after["local_accuracy"]
    model = onnx.load(exported / MODEL)
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in model.graph.node}
    assert all(
        value.data_type == onnx.TensorProto.FLOAT for value in model.graph.initializer if value.name[:5] == "tail."
    )
    assert call(["show", str(exported)]) == 0
    assert "float32" in capsys.readouterr().out
    assert call(["apply", str(exported), "digits", str(tmp_path / "out")]) == 1
    assert "--from original" in capsys.readouterr().err, "nothing is trained from its frozen blocks"


@pytest.mark.slow
def test_it_trains_again_on_features_of_the_quantised_blocks(exported: Path, tmp_path: Path) -> None:
    task, trainer = digits(), Trainer(exported, threads=1)
    names = load_file(exported / WEIGHTS).keys()
    assert trainer.bundle.info.train is not None
    assert names == set(trainer.bundle.info.train.weights)
    assert (trainer.bundle.info.train.own_samples, trainer.bundle.info.train.own_bytes) == (0, 0)
    assert OWN not in trainer.bundle.info.files  # --replay 0
    samples = task.local.train
    trainer.add([samples.load(row) for row in range(80)], [task.labels[samples.labels[row]] for row in range(80)])
    losses = trainer.train(epochs=3)
    assert losses[-1] < losses[0]
    trainer.save(tmp_path / "next")
    held = [task.local.val.load(row) for row in range(40)]
    answers = [Personaliser(tmp_path / "next").predict(sample).label for sample in held]
    assert np.mean([answer == task.labels[task.local.val.labels[row]] for row, answer in enumerate(answers)]) > 0.9


@pytest.mark.slow
def test_layers_that_int8_breaks_stay_in_float(own_cache: Path, tmp_path: Path) -> None:
    with_weights(own_cache)
    here = with_outliers(1)
    with new_folder(tmp_path / "out") as part:
        section = export(here, in_int8(plan_of(here), 0.01), given_tail(here, 3, tmp_path), part).sections["int8"]
        shutil.copyfile(part / MODEL, tmp_path / MODEL)
        seal(part, ABOUT)
    names = [value.name for value in onnx.load(tmp_path / MODEL).graph.initializer]
    assert section["float_layers"] == 2
    assert section["layers"] == 2  # a convolution, and the pooling before it
    assert section["float32"]["global_accuracy"] - section["int8"]["global_accuracy"] <= 0.01
    assert sum(name.startswith("int8/") and name.endswith("weight_quantized") for name in names) == 1


@pytest.mark.slow
def test_what_int8_breaks_is_refused_and_nothing_is_left(own_cache: Path, tmp_path: Path) -> None:
    with_weights(own_cache)
    here = with_outliers(2)
    weights = given_tail(here, 3, tmp_path)
    refusal = (
        r"int8 lowers global accuracy by \d+\.\d points.*, from 9.* of .*, more than --int8-loss 1: allow more, or"
    )
    with pytest.raises(BundleError, match=refusal), new_folder(tmp_path / "out") as part:
        export(here, in_int8(plan_of(here), 0.01), weights, part, trainable=True)
    assert [path.name for path in tmp_path.iterdir()] == [WEIGHTS]


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_half_bundle(own_cache: Path, tmp_path: Path) -> None:
    with_weights(own_cache)
    here = opened()
    weights, out = given_tail(here, 3, tmp_path), tmp_path / "out"
    if not (child := os.fork()):
        with new_folder(out) as part:
            export(here, in_int8(plan_of(here), 0.01), weights, part)
            time.sleep(60)
        os._exit(0)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(f".out.*/int8.{MODEL}")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert list(tmp_path.glob(f".out.*/{MODEL}"))  # it was at work
    assert not out.exists()


def test_what_has_no_frozen_blocks_before_a_tail_is_refused() -> None:
    here = opened()
    with pytest.raises(PlanError, match="trains the whole model: pick another trial"):
        in_int8(plan_of(here, 0), 0.01)
    with pytest.raises(PlanError, match="has exits: pick another trial"):
        in_int8(replace(plan_of(here), heads=HeadsPlan("with-tail", (Exit(1, 8),))), 0.01)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--int8-loss", "1"], "--int8-loss is the largest loss that --int8 may cost"),
        (["--int8", "--int8-loss", "101"], "--int8-loss must be 0 to 100 points"),
        (["--drop-unreached"], "--drop-unreached is for trials with exits, and trial 3 has none"),
        (["--c"], "--c writes a head that learns: give --trainable"),
        (["--c", "--trainable"], "--c is for heads in closed form of one class a sample, and trial 3 has none"),
        (["--drop-unreached", "--trainable"], "give it or --trainable, not both"),
        (["--replay", "1MB"], "--replay is how much of the user's samples --trainable keeps: give --trainable too"),
        (["--trainable", "--replay", "many"], "--replay must be a size such as 512MB, 1GiB or 1G, got 'many'"),
    ],
)
def test_an_option_without_a_meaning_is_wrong_usage(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["export", "--no-refit", str(RUN), str(tmp_path / "out"), "--pick", "3", *given]) == 2
    assert said in capsys.readouterr().err
