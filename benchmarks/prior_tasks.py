"""The six tasks of `benchmarks.prior`: two of handwritten digits, two people's muscle signals, two halves of photos."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.setup import CLOTHING, DATA, Held, clothing
from tuner.arrays import RowNumbers
from tuner.task import Domain, InputSpec, ModelSpec, Samples, Subset, Task, open_task
from tuner.task.data.samples import ArraySamples
from tuner.task.partition import stratified_holdout
from tuner.task.spec import Pretrain

SPEC = InputSpec(kind="arrays")
#: Digits that a model knows; the others are the user's.
KNOWN = 7
#: Photos of a half to train on, and the side of a photo in pixels; photos per class that the model knows, and of those
#: to score on.
PHOTOS, SIZE, OLD_PER_CLASS, OLD_SCORED = 240, 96, 2, 300


def digits(shift: int, per_class: int) -> Task:
    """Return handwritten digits: the user writes three of them, from `shift` on a few places further than 7 to 9."""
    pixels, labels = load_digits(return_X_y=True)
    samples = ArraySamples((pixels.reshape(-1, 1, 8, 8) / 16).astype(np.float32), (labels + shift) % 10, SPEC, "digits")
    rest, test = stratified_holdout(samples.labels, 0.2)
    train, val = (rest[part] for part in stratified_holdout(samples.labels[rest], 0.25))
    new = train[samples.labels[train] >= KNOWN]
    few = np.concatenate([new[samples.labels[new] == one][:per_class] for one in range(KNOWN, 10)])

    def part(indices: RowNumbers, *, local: bool) -> Subset:
        return Subset(samples, indices[(samples.labels[indices] >= KNOWN) == local])

    return Task(
        name=f"digits-{shift}",
        model=ModelSpec("tuner.models.digits:build", pretrain=Pretrain(epochs=12, learning_rate=3e-3)),
        input=SPEC,
        loss="single-label",
        local=Domain(Subset(samples, np.sort(few)), part(val, local=True), part(test, local=True)),
        global_=Domain(part(train, local=False), part(val, local=False), part(test, local=False)),
        labels=tuple(str((one - shift) % 10) for one in range(10)),
        head_rows=tuple(range(KNOWN)),
        local_labels=tuple(range(KNOWN, 10)),
        augment=("shift",),
    )


def person(name: str) -> Task:
    """Return one person's muscle signals, on a network that knows the gestures of others."""
    example = CLOTHING.parents[1] / "emg"
    text = (example / "task.toml").read_text().replace("male13", name).replace("${TUNER_DATA}", str(DATA.resolve()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(text.replace("gestures.tsv", str(example / "gestures.tsv")), encoding="utf-8")
        return replace(open_task(str(path), {}), name=f"emg-{name}")


def half(which: int) -> Task:
    """Return the clothing task with every other one of the user's classes."""
    task = clothing(SIZE)
    if task.global_ is None:
        raise ValueError("the clothing task has global data")
    rows = task.local_labels[which::2]

    def own(samples: Samples, most: int) -> Samples:
        indices = np.flatnonzero(np.isin(samples.labels, rows))
        chosen = np.random.default_rng(which).permutation(indices)[:most]
        return Held(Subset(samples, np.sort(chosen)))

    def old(samples: Samples, per_class: int, most: int) -> Samples:
        chosen = np.concatenate(
            [np.flatnonzero(samples.labels == one)[:per_class] for one in np.unique(samples.labels)]
        )
        return Held(Subset(samples, np.sort(np.random.default_rng(0).permutation(chosen)[:most])))

    return replace(
        task,
        name=f"clothing-{which}",
        local=Domain(own(task.local.train, PHOTOS), own(task.local.val, PHOTOS)),
        global_=Domain(old(task.global_.train, OLD_PER_CLASS, 10**6), old(task.global_.val, OLD_PER_CLASS, OLD_SCORED)),
        local_labels=tuple(rows),
    )


TASKS: Mapping[str, Callable[[], Task]] = {
    "digits 7-9": partial(digits, 0, 60),
    "digits 0-2": partial(digits, 7, 30),
    "EMG male13": partial(person, "male13"),
    "EMG female1": partial(person, "female1"),
    "clothing A": partial(half, 0),
    "clothing B": partial(half, 1),
}
