"""Training steps on the ordinary onnxruntime refuse files, weights, batches and operators that do not fit."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from tests.backends.torch.tails import OUTPUTS, TAILS, Tail
from tuner.backends.torch.onnx.write import model, write
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import Step, StepError
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.ort.layout import StepFileError
from tuner.ort.training_step import StepSession, TrainingRows, train
from tuner.plan.parts import RecipePlan

pytestmark = pytest.mark.slow


def traced(tail: Tail) -> Step:
    return trace(
        tail.module, RecipePlan(), loss=CROSS_ENTROPY, input_shape=tail.input_shape, outputs=OUTPUTS, batch_size=8
    )


def test_a_file_that_is_no_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    after = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [info], [after])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    with pytest.raises(StepFileError, match=r"a training step of format 1 is wanted, but .*other\.onnx holds none"):
        StepSession(path, {})
    path.write_bytes(b"no")
    with pytest.raises(StepFileError, match=r"cannot load .*other\.onnx"):
        StepSession(path, {})


def test_weights_and_batches_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tail = TAILS["linear head"]()
    step = traced(tail)
    weights = {name: value.numpy() for name, value in tail.module.state_dict().items()}
    write(step, tmp_path / "step.onnx")
    session = StepSession(tmp_path / "step.onnx", weights, seed=0)
    with pytest.raises(StepFileError, match="takes 1 to 8 samples, got 9: give fewer at a time"):
        session.step(np.zeros((9, 64), np.float32), np.zeros(9, np.int64), 0.1)
    rows = TrainingRows(lambda rows: np.zeros((len(rows), 64), np.float32), np.zeros(9, np.int64))
    with pytest.raises(
        StepFileError, match=r"takes batches of at most 8 samples, but recipe.batch_size is 32: give at most 8"
    ):
        list(train(session, rows, RecipePlan(batch_size=32), 0))
    with pytest.raises(StepFileError, match=r"trains weight of shape \[10, 64\], but the weights have shape \[2\]"):
        StepSession(tmp_path / "step.onnx", {**weights, "weight": np.zeros(2)})
    with pytest.raises(StepFileError, match="but the weights are not there"):
        StepSession(tmp_path / "step.onnx", {"bias": weights["bias"]})


class Sorted(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value.sort(-1).values


def test_an_operator_without_a_form_is_named() -> None:
    tail = Tail(nn.Sequential(Sorted(), nn.Linear(4, OUTPUTS)), (4,))
    with pytest.raises(
        StepError, match=r"a step with aten.sort.default has no ONNX form: train it with --backend torch"
    ):
        model(traced(tail))
