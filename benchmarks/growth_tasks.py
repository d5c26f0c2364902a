"""The tasks of the benchmarks of growth: digits, and one person's muscle signals."""

import os
import tempfile
from pathlib import Path

import numpy as np

from tuner.task import Domain, Task, open_task
from tuner.task.data.samples import ArraySamples
from tuner.task.spec import InputSpec, ModelSpec

QUICK_TRAIN, QUICK_TEST = 6_000, 2_000
MNIST_MEAN, MNIST_STD = 0.1307 * 255, 0.3081 * 255
EMG_TASK = """
name = "emg"
[model]
factory = "tuner.models.{factory}"
arguments = {{ channels = 8, time = 100, outputs = 7{more} }}
[local]
kind = "signals"
train = "{data}/emg/myo.npz#eval/{person}/training0"
val = "{data}/emg/myo.npz#eval/{person}/test1"
[input]
window = 100
hop = 20
[augment]
ops = ["noise", "drift", "pool", "shift"]
"""


def data_folder() -> Path:
    """Return the folder with the real data."""
    return Path(os.environ.get("TUNER_DATA", Path(__file__).parents[2] / "shared" / "data"))


def mnist(*, quick: bool) -> Task:
    """Return MNIST as a task with LeNet-2D [20-50-500], fresh; its test images are what arms are scored on."""
    spec = InputSpec(kind="arrays", mean=(MNIST_MEAN,), std=(MNIST_STD,))

    def samples(split: str, count: int | None) -> ArraySamples:
        with np.load(data_folder() / "mnist" / "mnist.npz") as content:
            images, labels = content[f"x_{split}"], content[f"y_{split}"]
        chosen = np.random.default_rng(0).permutation(len(labels))[:count]
        return ArraySamples(images[chosen].astype(np.float32), labels[chosen].astype(np.int64), spec, f"x_{split}")

    train, test = samples("train", QUICK_TRAIN if quick else None), samples("test", QUICK_TEST if quick else None)
    digits = tuple(str(digit) for digit in range(10))
    rows = tuple(range(10))
    model = ModelSpec("tuner.models.lenet:lenet_2d")
    return Task("mnist", model, spec, "single-label", Domain(train, test), None, digits, rows, rows)


def emg(person: str, factory: str) -> Task:
    """Return one person's muscle signals as a task with a fresh network of full size, a MobileNet with norms."""
    more = ", norms = true" if factory.startswith("mobilenet") else ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(EMG_TASK.format(factory=factory, data=data_folder().resolve(), person=person, more=more))
        return open_task(str(path), {})
