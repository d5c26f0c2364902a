"""The built-in task and its model, opened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pretrained import with_weights
from tests.sessions import opened
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.plan.info import ModelInfo
from tuner.task import Task
from tuner.task.builtin import digits


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that modules share, with the weights of the digits' network."""
    return with_weights(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def task(pretrained: Path) -> Iterator[Task]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(pretrained))
        yield digits()


@pytest.fixture(scope="module")
def loaded(task: Task) -> OpenModel:
    return load(task)


@pytest.fixture(scope="module")
def model(task: Task) -> ModelInfo:
    return opened(TorchBackend(), task).model
