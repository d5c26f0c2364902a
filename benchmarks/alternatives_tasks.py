"""The tasks of `benchmarks.alternatives`: what a user has, and test samples that no search and no arm sees.

The tests are the same for every seed. What a seed changes is in each task: which of the user's samples are
`local.val`, and, where the data has more than the user is given, which of them are hers. Plain arms have no use for a
validation split: they train on `local.train` and `local.val` together. `tuner.run` gets the task without its tests.
"""

import csv
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.prior_tasks import person
from benchmarks.setup import DATA, Joined, clothing
from tuner.models.yamnet import Yamnet, yamnet_256
from tuner.task import Domain, FileSamples, InputSpec, ModelSpec, Samples, Subset, Task, load_task, stratified_holdout
from tuner.task.data.samples import ArraySamples
from tuner.task.digits import digits

#: Mean of ImageNet's pixels.
MEAN = (0.485, 0.456, 0.406)
#: Standard deviation of ImageNet's pixels.
STD = (0.229, 0.224, 0.225)
#: Share of the user's samples that is `local.val`.
VALIDATION = 0.2
#: Share of the clothing photos that is the local test.
CLOTHING_TEST = 1 / 3
#: Share of the user's samples that a seed leaves out, where the task has its own `local.val`.
LEFT_OUT = 0.1
#: Images of a class of CIFAR-10 that the user has.
CIFAR_OWN = 40
#: Side that CIFAR-10's images of 32 pixels are enlarged to.
CIFAR_SIZE = 96
#: Most samples of the global test.
GLOBAL_TEST = 1000
#: Speaker whose digits are personalised to.
SPEAKER = "theo"
#: First recording of a digit by the speaker that is for the test; the ones before are hers to train on.
FIRST_TEST = 13
#: Recordings of a digit by the speaker that are `local.val`.
SPOKEN_VALIDATION = 3
#: First recordings of a digit by another speaker that are global validation and global test.
OTHERS_VALIDATION, OTHERS_TEST = 20, 23
#: Recordings of a speaker and digit.
RECORDINGS = 25


class Together(Joined):
    """The samples of two partitions, which still know what they were cut from."""

    def origin(self, index: int) -> str:
        """Return the recording that the sample was cut from."""
        part, own = self._places[index]
        return part.origin(own)

    def whole(self, index: int) -> str:
        """Return the name of the sound that the sample is a part of."""
        part, own = self._places[index]
        return part.whole(own)


@dataclass(frozen=True, eq=False)
class Problem:
    """A task with its tests.

    Attributes:
        task: What `tuner.run` gets.
        test: Local test samples.
        global_test: Global test samples; None for a task without global data.
        whole: Whether an answer is for a whole sound, as the mean over its patches.
    """

    task: Task
    test: Samples
    global_test: Samples | None = None
    whole: bool = False

    @property
    def own(self) -> Samples:
        """All of the user's samples to train on."""
        return Together(self.task.local.train, self.task.local.val)

    @property
    def adds_classes(self) -> bool:
        """Whether the user's classes come beside old ones, so that an arm has to answer all of them."""
        known = len(self.task.head_rows)
        return self.global_test is not None and any(row >= known for row in self.task.local_labels)

    def mixed(self, most: int, seed: int) -> Samples | None:
        """Return at most so many global training samples, as many of each class; None without global data."""
        if self.task.global_ is None:
            return None
        return drawn(self.task.global_.train, most, seed)


def drawn(samples: Samples, most: int, seed: int) -> Samples:
    """Return at most so many samples, drawn at random from each class alike."""
    if len(samples) <= most:
        return samples
    return Subset(samples, stratified_holdout(samples.labels, most / len(samples), seed)[1])


def divided(samples: Samples, seed: int) -> Domain:
    """Return the user's samples as training and validation."""
    train, val = stratified_holdout(samples.labels, VALIDATION, seed)
    return Domain(Subset(samples, train), Subset(samples, val))


def thinned(samples: Samples, seed: int) -> Samples:
    """Return the samples without a tenth of the recordings that they were cut from, drawn by the seed."""
    origins = np.array([samples.origin(index) for index in range(len(samples))])
    _, first, places = np.unique(origins, return_index=True, return_inverse=True)
    kept, _ = stratified_holdout(samples.labels[first], LEFT_OUT, seed)
    return Subset(samples, np.flatnonzero(np.isin(places, kept)))


def own_classes(name: str, model: ModelSpec, spec: InputSpec, local: Domain, labels: Sequence[str]) -> Task:
    """Return a task of new classes alone."""
    rows, photos = tuple(range(len(labels))), ("flip", "crop", "shift")
    return Task(name, model, spec, "single-label", local, None, tuple(labels), (), rows, photos)


def mobilenet() -> ModelSpec:
    """Return MobileNetV2 with ImageNet's weights."""
    weights = (DATA / "models" / "mobilenet_v2_imagenet.pth").resolve()
    return ModelSpec("torchvision.models:mobilenet_v2", weights=str(weights))


def photos(name: str, seed: int) -> Problem:
    """Return a folder of photos in class folders below ``train`` and ``test``."""
    spec, root = InputSpec("images", 160, 160, MEAN, STD), (DATA / "more" / name).resolve()
    labels = sorted(path.name for path in (root / "train").iterdir())

    def part(folder: str) -> Samples:
        files = [(file, row) for row, label in enumerate(labels) for file in sorted((root / folder / label).iterdir())]
        return FileSamples([file for file, _ in files], np.array([row for _, row in files], np.int64), spec)

    return Problem(own_classes(name, mobilenet(), spec, divided(part("train"), seed), labels), part("test"))


def cifar(seed: int) -> Problem:
    """Return a user with some images of each class of CIFAR-10."""
    spec, stored = InputSpec("images", CIFAR_SIZE, CIFAR_SIZE, MEAN, STD), np.load(DATA / "cifar10/cifar10_small.npz")
    train, test = (
        ArraySamples(stored[f"x_{name}"], stored[f"y_{name}"].astype(np.int64), spec, name)
        for name in ("train", "test")
    )
    few = drawn(train, CIFAR_OWN * 10, seed)
    return Problem(own_classes("cifar", mobilenet(), spec, divided(few, seed), list("0123456789")), test)


def garments(seed: int) -> Problem:
    """Return the clothing task; its tests are a third of the user's photos, and half of the global ones to score on."""
    task = clothing(160)
    if task.global_ is None:
        raise ValueError("the clothing task has global data")
    all_own = Joined(task.local.train, task.local.val)
    rest, test = stratified_holdout(all_own.labels, CLOTHING_TEST)
    val, global_test = (Subset(task.global_.val, rows) for rows in stratified_holdout(task.global_.val.labels, 0.5))
    local, global_ = divided(Subset(all_own, rest), seed), Domain(task.global_.train, val)
    return Problem(replace(task, local=local, global_=global_), Subset(all_own, test), global_test)


def without_tests(task: Task, seed: int, *, whole: bool = False) -> Problem:
    """Divide a task that has a local test; without a global one, that is half of the global samples to score on."""
    local, domain = task.local, task.global_
    if local.test is None or domain is None:
        raise ValueError(f"{task.name} must have a local test and global data")
    val, test = domain.val, domain.test
    if test is None:
        val, test = (Subset(domain.val, rows) for rows in stratified_holdout(domain.val.labels, 0.5))
    own = replace(task, local=Domain(thinned(local.train, seed), local.val), global_=Domain(domain.train, val))
    return Problem(own, local.test, drawn(test, GLOBAL_TEST, 0), whole)


def written_digits(seed: int) -> Problem:
    """Return the built-in digits: the user's 7 to 9 beside 0 to 6."""
    return without_tests(digits(), seed)


def muscles(seed: int) -> Problem:
    """Return one person's muscle signals; the same gestures as the model knows from others."""
    return without_tests(person("male13"), seed)


def listening(outputs: int, weights: str) -> nn.Module:
    """Build YAMNet-256 with a head of zeros: its published weights have none.

    Args:
        outputs: Number of classes.
        weights: File of the weights.
    """
    model = yamnet_256(outputs)
    if not isinstance(model, Yamnet):
        raise TypeError("yamnet_256 builds a Yamnet")
    model.load_state_dict(model.translated(torch.load(weights, weights_only=True)), strict=False)
    nn.init.zeros_(model.get_parameter("head.weight"))
    nn.init.zeros_(model.get_parameter("head.bias"))
    return model


def yamnet_file() -> Path:
    """Return the file of YAMNet's weights."""
    return (DATA / "models" / "yamnet_256_audioset.pth").resolve()


def sounds(seed: int) -> Problem:
    """Return ESC-10: three folds to train on, one of the first four to validate on, the fifth for the test."""
    root, fold = (DATA / "audio" / "esc10").resolve(), seed % 4 + 1
    others = "".join(str(number) for number in range(1, 5) if number != fold)
    task = _from_text(
        f"""
        name = "esc10"
        [model]
        factory = "benchmarks.alternatives_tasks:listening"
        arguments = {{ outputs = 10, weights = "{yamnet_file()}" }}
        [local]
        kind = "audio"
        train = "{root}#[{others}]-*"
        val = "{root}#{fold}-*"
        test = "{root}#5-*"
        [input]
        recording = '^\\d-\\d+'
        [augment]
        ops = ["time-shift", "time-mask", "frequency-mask"]
        """
    )
    if task.local.test is None:
        raise ValueError("ESC-10 has a fifth fold")
    return Problem(replace(task, local=Domain(task.local.train, task.local.val)), task.local.test, whole=True)


def spoken(seed: int) -> Problem:
    """Return one speaker's digits, on a network whose head has learnt those of five others."""
    root = (DATA / "more" / "spoken").resolve()
    mine = np.random.default_rng(seed).permutation(FIRST_TEST)
    numbers: dict[str, Sequence[int]] = {
        "train": [int(number) for number in mine[SPOKEN_VALIDATION:]],
        "val": [int(number) for number in mine[:SPOKEN_VALIDATION]],
        "test": range(FIRST_TEST, RECORDINGS),
    }
    known: dict[str, Sequence[int]] = {
        "train": range(OTHERS_VALIDATION),
        "val": range(OTHERS_VALIDATION, OTHERS_TEST),
        "test": range(OTHERS_TEST, RECORDINGS),
    }
    others = sorted(path.name for path in root.iterdir() if path.name != SPEAKER)
    with tempfile.TemporaryDirectory() as folder:

        def listed(domain: str, parts: Mapping[str, Sequence[int]], speakers: Sequence[str]) -> str:
            for part, chosen in parts.items():
                with (Path(folder) / f"{domain}-{part}.csv").open("w", encoding="utf-8", newline="") as file:
                    rows = csv.writer(file)
                    rows.writerow(("path", "label"))
                    rows.writerows(
                        (root / who / f"{digit}_{who}_{number}.wav", digit)
                        for who in speakers for digit in range(10) for number in chosen
                    )  # fmt: skip
            return "\n".join(f'{part} = "{folder}/{domain}-{part}.csv"' for part in parts)

        task = _from_text(
            f"""
            name = "spoken"
            [model]
            factory = "tuner.models.yamnet:yamnet_256"
            arguments = {{ outputs = 10 }}
            weights = "{yamnet_file()}"
            pretrain = {{ epochs = 30, learning_rate = 3e-3 }}
            [global]
            kind = "audio"
            {listed("global", known, others)}
            [local]
            kind = "audio"
            {listed("local", numbers, [SPEAKER])}
            [augment]
            ops = ["time-shift", "time-mask", "frequency-mask"]
            """
        )
    if task.local.test is None or task.global_ is None or task.global_.test is None:
        raise ValueError("the spoken digits have tests")
    own = replace(
        task,
        local=Domain(task.local.train, task.local.val),
        global_=Domain(task.global_.train, task.global_.val),
    )
    return Problem(own, task.local.test, task.global_.test, whole=True)


def _from_text(text: str) -> Task:
    """Load a task file that is only text."""
    os.environ.setdefault("TUNER_DATA", str(DATA))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text("\n".join(line.strip() for line in text.splitlines()), encoding="utf-8")
        return load_task(str(path), {})


TASKS: Mapping[str, Callable[[int], Problem]] = {
    "sign": partial(photos, "sign"),
    "objects": partial(photos, "objects"),
    "clothing": garments,
    "cifar": cifar,
    "digits": written_digits,
    "esc10": sounds,
    "spoken": spoken,
    "emg": muscles,
}
