"""A trial's training, as a session runs it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.backends.torch.plans import plan_of
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import OpenModel
from tuner.errors import TrainingError
from tuner.store.store import Store
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_weights_that_are_not_numbers_are_not_scored(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    plan = plan_of(task, loaded)
    plan = replace(plan, recipe=replace(plan.recipe, optimiser="sgd", learning_rate=1e45, epochs=1, batch_size=256))
    session = opened(TorchBackend(), task)
    with pytest.raises(TrainingError, match=r"lower recipe\.learning_rate"):
        session.train(Trial(plan, 0, Store(tmp_path / "store"), tmp_path / "w"))
