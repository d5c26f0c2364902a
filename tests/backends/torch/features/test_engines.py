"""The engines that run a prefix."""

import numpy as np
import pytest

from tuner.backends.torch.features import prefix
from tuner.backends.torch.features.batches import batches
from tuner.backends.torch.features.engines import TORCH, prefix_engine
from tuner.backends.torch.features.prefix import Prefix
from tuner.backends.torch.model.load import OpenModel
from tuner.backends.torch.threads import ThreadChoice
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_the_engines_agree(task: Task, loaded: OpenModel) -> None:
    sample = np.stack([task.local.val.load(index) for index in range(16)])
    ours, theirs = (prefix_engine(loaded, [1, 2, 3], kind, 1)(sample) for kind in (TORCH, "onnxruntime-fp32"))
    for first, second in zip(ours, theirs, strict=True):
        assert np.allclose(first, second, atol=1e-4)


def test_the_prefix_tries_several_numbers_of_threads_and_computes_the_same(
    task: Task, loaded: OpenModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    class Noted(ThreadChoice):
        def __enter__(self) -> None:
            super().__enter__()
            used.append(self.threads)

    monkeypatch.setattr(prefix, "ThreadChoice", Noted)
    todo = list(batches(task, {"local.train": set(range(160))}))
    one, both = (
        [outputs[2] for _, outputs in Prefix(task, loaded, [2], TORCH, threads).over(todo)] for threads in (1, 2)
    )
    assert all(np.array_equal(first, second) for first, second in zip(one, both, strict=True))
    assert set(used[: len(todo)]) == {1}
    assert set(used[len(todo) :]) == {1, 2}
