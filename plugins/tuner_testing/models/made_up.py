"""A made-up task, for what a contract has to train: 24 local samples of five classes, in noise."""

import numpy as np

from tuner.task.data.samples import ArraySamples
from tuner.task.spec import InputSpec, ModelSpec
from tuner.task.task import Domain, Task

CLASSES, TRAIN, VAL = 5, 24, 10


def made_up_task() -> Task:
    """Return a task of float32 [3, 8, 8] samples and the network of `tuner_testing.models.network`."""
    spec, generator = InputSpec(kind="arrays"), np.random.default_rng(0)

    def samples(count: int, title: str) -> ArraySamples:
        labels = np.arange(count) % CLASSES
        values = generator.normal(size=(count, 3, 8, 8)) + labels[:, None, None, None] / CLASSES
        return ArraySamples(values.astype(np.float32), labels.astype(np.int64), spec, title)

    return Task(
        name="made-up",
        model=ModelSpec("tuner_testing.models.network:build"),
        input=spec,
        loss="single-label",
        local=Domain(samples(TRAIN, "train"), samples(VAL, "val")),
        global_=None,
        labels=tuple(str(number) for number in range(CLASSES)),
        head_rows=tuple(range(CLASSES)),
        local_labels=tuple(range(CLASSES)),
    )
