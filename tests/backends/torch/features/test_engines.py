"""The engines that run a prefix."""

import numpy as np
import pytest

from tuner.backends.torch.features.engines import TORCH, prefix_engine
from tuner.backends.torch.model.load import OpenModel
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_the_engines_agree(task: Task, loaded: OpenModel) -> None:
    sample = np.stack([task.local.val.load(index) for index in range(16)])
    ours, theirs = (prefix_engine(loaded, [1, 2, 3], kind, 1)(sample) for kind in (TORCH, "onnxruntime-fp32"))
    for first, second in zip(ours, theirs, strict=True):
        assert np.allclose(first, second, atol=1e-4)
