"""The ONNX Runtime backend keeps the contract, and trains what PyTorch trains."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.sessions import barely_pretrained, opened
from tuner.backends.base import Trial
from tuner.backends.extensions import NOTHING_ADDED
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.onnx.write import writer
from tuner.cli.app import call
from tuner.distribution import SWITCH
from tuner.errors import PluginError, UnsupportedError
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome
from tuner.results.run import Run
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import task_info
from tuner_onnx_steps.torch import write as lower
from tuner_testing import BackendContract

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


class TestOrtBackend(BackendContract):
    backend = OrtBackend()

    def task(self) -> Task:
        return barely_pretrained()


def trained(backend: TorchBackend, task: Task, folder: Path, recipe: RecipePlan, split: int) -> Outcome:
    model = opened(backend, task).model
    plan = TrialPlan(
        model,
        task_info(task),
        split=split,
        cache=CachePlan("cache", 16) if split else CachePlan(),
        recipe=recipe,
        runtime=RuntimePlan(backend.name, 1),
    )
    return opened(backend, task).train(Trial(plan, 1, Store(folder / "store"), folder / f"{backend.name}.safetensors"))


@pytest.mark.parametrize(("split", "freeze_bn"), [(1, True), (1, False), (0, True)])
def test_both_backends_train_alike(split: int, freeze_bn: bool, tmp_path: Path) -> None:
    task = barely_pretrained()
    recipe = RecipePlan(epochs=2, batch_size=16, optimiser="sgd", learning_rate=1e-2, freeze_bn=freeze_bn)
    ours, theirs = (trained(one, task, tmp_path, recipe, split) for one in (OrtBackend(), TorchBackend()))
    losses = [[epoch["loss"] for epoch in outcome.epochs] for outcome in (ours, theirs)]
    assert np.allclose(losses[0], losses[1], rtol=1e-3)
    assert abs(ours.values["local_accuracy"] - theirs.values["local_accuracy"]) <= 0.01
    assert ours.notes[0].startswith("trained by ONNX Runtime")
    assert theirs.notes[0].startswith("run by PyTorch's eager loop")


def test_no_step_of_pytorch_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> float:
        raise AssertionError("a step of PyTorch ran")

    monkeypatch.setattr(EagerSteps, "step", refuse)
    outcome = trained(OrtBackend(), barely_pretrained(), tmp_path, RecipePlan(epochs=1), 1)
    assert outcome.values["local_accuracy"] > 0.3
    with pytest.raises(AssertionError, match="a step of PyTorch ran"):
        trained(TorchBackend(), barely_pretrained(), tmp_path, RecipePlan(epochs=1), 1)


def test_a_tail_without_an_onnx_form_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(lower.FORMS, torch.ops.aten.convolution_backward.default)
    monkeypatch.setattr(lower, "_rules", dict)  # not what they are listed from: they are kept for the next test
    with pytest.raises(UnsupportedError, match=r"aten\.convolution_backward.* has no ONNX form: .* --backend torch"):
        trained(OrtBackend(), barely_pretrained(), tmp_path, RecipePlan(epochs=1), 1)


@pytest.mark.parametrize("backend", ["onnxruntime", "torch"])
def test_a_study_on_one_backend_trains_on_no_other(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"run digits --space smoke --backend {backend} --trials 3 --time 1h --json".split()
    assert call([*asked, "--out", str(tmp_path / "run"), "--store", str(tmp_path / "store")]) == 0
    records = Run.open(tmp_path / "run").records
    assert [record.state for record in records] == ["done"] * 3
    assert {record.plan.runtime.backend for record in records if record.plan} == {backend}
    said = {"onnxruntime": "trained by ONNX Runtime: ", "torch": "run by PyTorch"}[backend]
    trained = [record for record in records if record.plan and not record.plan.traits.solves]
    assert trained
    assert all(record.notes[0].startswith(said) for record in trained)
    front = json.loads(capsys.readouterr().out)["front"]
    assert front
    assert {"by ONNX Runtime" in trial["sentence"] for trial in front} == {backend == "onnxruntime"}


def test_without_the_plugin_that_writes_steps_the_backend_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "-onnx-steps")
    writer.cache_clear()
    with pytest.raises(PluginError, match="the plugin onnx-steps writes training steps, and is off"):
        OrtBackend().open(barely_pretrained(), NOTHING_ADDED)
