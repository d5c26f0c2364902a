"""The names of an exported step: the given model's, also where an edit put its layers into a module of its own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tuner.backends.torch.export.trainable.edits import named_as
from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import Step
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.errors import BundleError
from tuner.ort.training_step import StepSession
from tuner.plan.parts import RecipePlan


def traced(tail: nn.Module, **recipe: str | bool) -> Step:
    return trace(
        tail,
        RecipePlan(**recipe),  # type: ignore[arg-type]  # of several types
        loss=CROSS_ENTROPY,
        input_shape=(4,),
        outputs=3,
        batch_size=2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_a_wrapped_tail_trains_by_the_given_names(optimiser: str, tmp_path: Path) -> None:
    given = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    given[0].requires_grad_(requires_grad=False)
    tail = nn.Sequential(nn.Dropout(0.5), nn.Sequential(given, nn.Identity()))
    step = named_as(given, tail, traced(tail, optimiser=optimiser, freeze_bn=False))
    write(step, tmp_path / "step.onnx")
    weights = {name: value.numpy(force=True).copy() for name, value in given.state_dict().items()}
    session = StepSession(tmp_path / "step.onnx", weights, 1, seed=0)
    for _ in range(3):
        session.step(np.ones((2, 4), np.float32), np.array([0, 1]), 0.1)
    after = session.weights()
    assert after.keys() == weights.keys()
    assert {name for name in after if not np.array_equal(after[name], weights[name])} >= {"1.weight", "1.bias"}
    assert np.array_equal(after["0.weight"], weights["0.weight"])


@pytest.mark.slow
def test_a_tail_as_it_is_keeps_its_names() -> None:
    given = nn.Sequential(nn.Linear(4, 3))
    step = traced(given)
    named = named_as(given, given, step)
    assert (named.inputs, named.outputs, named.updates) == (step.inputs, step.outputs, step.updates)


@pytest.mark.slow
def test_a_buffer_that_an_edit_added_is_refused() -> None:
    class Shifted(nn.Module):
        shift: torch.Tensor

        def __init__(self, tail: nn.Module) -> None:
            super().__init__()
            self.tail = tail
            self.register_buffer("shift", torch.ones(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            moved: torch.Tensor = self.tail(value + self.shift)
            return moved

    given = nn.Sequential(nn.Linear(4, 3))
    tail = Shifted(given)
    with pytest.raises(BundleError, match="an edit of the tail added 'shift': export without --trainable"):
        named_as(given, tail, traced(tail))
