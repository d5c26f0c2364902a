"""Scores of a trained tail."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.backends.torch.plans import plan_of
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.scoring import score
from tuner.errors import TrainingError
from tuner.store.store import Store
from tuner.task import Task

pytestmark = pytest.mark.slow


class Tail(nn.Module):
    """Gives logits that are not finite, in evaluation mode, where an input is negative."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value if self.training else value.masked_fill(value < 0, float("nan"))


def test_logits_that_are_not_finite_are_no_score(task: Task) -> None:
    values = torch.ones(40, 10)
    inputs = TailInputs(lambda rows: values[torch.from_numpy(np.asarray(rows))], np.zeros(40, np.int64))
    assert score(task, Tail(), inputs) == 1.0
    values[33, 2] = values[33, 3] = values[4, 1] = -1
    with pytest.raises(
        TrainingError, match=r"the tail must give finite logits .* for 2 of 40 samples .*no score: check"
    ):
        score(task, Tail(), inputs)


def test_weights_that_are_not_numbers_are_not_scored(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    plan = plan_of(task, loaded)
    plan = replace(plan, recipe=replace(plan.recipe, optimiser="sgd", learning_rate=1e45, epochs=1, batch_size=256))
    session = opened(TorchBackend(), task)
    with pytest.raises(TrainingError, match=r"lower recipe\.learning_rate"):
        session.train(Trial(plan, 0, Store(tmp_path / "store"), tmp_path / "w"))
