"""The tasks of `benchmarks.alternatives`: what a user has, and test samples that no search and no arm sees.

The tests are the same for every seed. What a seed changes is in each task: which of the user's samples are
`local.val`, and, where the data has more than the user is given, which of them are hers. Plain arms have no use for a
validation split: they train on `local.train` and `local.val` together. `tuner.run` gets the task without its tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.alternatives.problem import Problem, divided, drawn, thinned, with_rare_class, with_strangers
from benchmarks.alternatives.sounds import sounds, spoken
from benchmarks.lib.places import DATA
from benchmarks.lib.setup import Joined, clothing, known_of
from benchmarks.search.prior import person
from tuner.task import Domain, FileSamples, InputSpec, ModelSpec, Samples, Subset, Task, stratified_holdout
from tuner.task.builtin import digits
from tuner.task.data.samples import ArraySamples

#: Mean of ImageNet's pixels.
MEAN = (0.485, 0.456, 0.406)
#: Standard deviation of ImageNet's pixels.
STD = (0.229, 0.224, 0.225)
#: Share of the clothing photos that is the local test.
CLOTHING_TEST = 1 / 3
#: Images of a class of CIFAR-10 that the user has.
CIFAR_OWN = 40
#: Side that CIFAR-10's images of 32 pixels are enlarged to.
CIFAR_SIZE = 96
#: Most samples of the global test.
GLOBAL_TEST = 1000


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
    """Return the clothing task; its tests are a third of the user's photos, and half of `global.val`."""
    task = clothing(160)
    known = known_of(task)
    all_own = Joined(task.local.train, task.local.val)
    rest, test = stratified_holdout(all_own.labels, CLOTHING_TEST)
    val, global_test = (Subset(known.val, rows) for rows in stratified_holdout(known.val.labels, 0.5))
    local, global_ = divided(Subset(all_own, rest), seed), Domain(known.train, val)
    return Problem(replace(task, local=local, global_=global_), Subset(all_own, test), global_test)


def without_tests(task: Task, seed: int, *, whole: bool = False) -> Problem:
    """Take the tests out of a task; without a global test, that is half of the global validation samples."""
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


def rare(name: str, seed: int) -> Problem:
    """Return a task with one class cut to ten samples."""
    return with_rare_class(ORDINARY[name](seed), seed)


def unknown(name: str, seed: int) -> Problem:
    """Return a task with some of the user's classes left out."""
    return with_strangers(ORDINARY[name](seed))


#: Tasks that all arms are compared on.
ORDINARY: Mapping[str, Callable[[int], Problem]] = {
    "sign": partial(photos, "sign"),
    "objects": partial(photos, "objects"),
    "clothing": garments,
    "cifar": cifar,
    "digits": written_digits,
    "esc10": sounds,
    "spoken": spoken,
    "emg": muscles,
}
#: The same, and those that ask one thing of some of them.
TASKS: Mapping[str, Callable[[int], Problem]] = {
    **ORDINARY,
    **{f"rare-{name}": partial(rare, name) for name in ("sign", "clothing")},
    **{f"unknown-{name}": partial(unknown, name) for name in ("sign", "objects", "clothing", "cifar", "digits")},
}
