"""The engines that run a prefix."""

from dataclasses import replace

import numpy as np
import pytest

from tuner.backends.torch.features import prefix
from tuner.backends.torch.features.engines import ORT, TORCH, prefix_engine
from tuner.backends.torch.features.prefix import Prefix, batches
from tuner.backends.torch.model.open.load import OpenModel
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


def test_one_model_at_two_input_sizes_has_two_exported_prefixes(loaded: OpenModel) -> None:
    first, *others = loaded.info.blocks
    larger = loaded.with_info(replace(loaded.info, blocks=(replace(first, in_shape=(1, 12, 12)), *others)))
    for model, size in ((loaded, 8), (larger, 12), (loaded, 8)):
        sample = np.random.default_rng(size).random((4, 1, size, size), np.float32)
        ours, theirs = (prefix_engine(model, [2], kind, 1)(sample)[0] for kind in (TORCH, ORT))
        assert np.allclose(ours, theirs, atol=1e-4)
