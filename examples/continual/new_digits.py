"""Digits 0 to 4 (stage 1), then 5 to 9 (stage 2): a network that learns the new digits may forget the old ones.

``tuner run examples/continual/new_digits.py:task --space wearable`` shows the accuracy on both before and after.
TUNER_DATA names the folder with the data; by default it is ../shared/data next to the checkout.
"""

import os
from pathlib import Path

import numpy as np

from tuner.errors import TaskError
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Subset, Task
from tuner.task.spec import Pretrain

OLD = 5  # digits below are global, the others local
TRAIN, HELD_OUT = 3_000, 1_000  # images of each stage: for training, and for each of validation and test
SPEC = InputSpec(kind="arrays", mean=(0.1307 * 255,), std=(0.3081 * 255,))


def task() -> Task:
    """Build the task: LeNet-2D in full size, pretrained on the first five digits."""
    data = os.environ.get("TUNER_DATA", Path(__file__).parents[3] / "shared" / "data")
    file = Path(data) / "mnist" / "mnist.npz"
    if not file.is_file():
        raise TaskError(f"{file} does not exist: set TUNER_DATA to the folder that holds mnist/mnist.npz")
    with np.load(file) as content:
        images, labels = content["x_train"].astype(np.float32), content["y_train"].astype(np.int64)
    samples = ArraySamples(images, labels, SPEC, "x_train")
    order = np.random.default_rng(0).permutation(len(labels))

    def stage(digits: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Domain:
        parts = np.split(digits[: TRAIN + 2 * HELD_OUT], [TRAIN, TRAIN + HELD_OUT])
        return Domain(*(Subset(samples, np.sort(part)) for part in parts))

    return Task(
        name="new-digits",
        model=ModelSpec("tuner.models.lenet:lenet_2d", pretrain=Pretrain(epochs=5, learning_rate=1e-3)),
        input=SPEC,
        loss="single-label",
        local=stage(order[labels[order] >= OLD]),
        global_=stage(order[labels[order] < OLD]),
        labels=tuple(str(digit) for digit in range(10)),
        head_rows=tuple(range(OLD)),
        local_labels=tuple(range(OLD, 10)),
        augment=("shift",),
    )
