"""A task with its tests, and how the user's samples of `benchmarks.alternatives` are divided."""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.lib.setup import Joined
from tuner.task import Domain, Samples, Subset, Task, stratified_holdout

#: Share of the user's samples that is `local.val`.
VALIDATION = 0.2
#: Share of the user's samples that a seed leaves out, where the task has its own `local.val`.
LEFT_OUT = 0.1
#: Samples that are left of a rare class, those of `local.val` included.
RARE = 10
#: Share of the user's classes that nobody trains on, where strangers are to be refused.
STRANGERS = 0.3


@dataclass(frozen=True, eq=False)
class Problem:
    """A task with its tests.

    Attributes:
        task: What `tuner.run` gets.
        test: Local test samples.
        global_test: Global test samples; None for a task without global data.
        whole: Whether an answer is for a whole sound, as the mean over its patches.
        rare: Label of which the user has ten samples; None where no class was cut.
        strangers: Test samples of classes that nobody trains on; None where no class was left out.
    """

    task: Task
    test: Samples
    global_test: Samples | None = None
    whole: bool = False
    rare: int | None = None
    strangers: Samples | None = None

    @property
    def own(self) -> Samples:
        """All of the user's samples to train on."""
        return Joined(self.task.local.train, self.task.local.val)

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


def with_rare_class(problem: Problem, seed: int) -> Problem:
    """Return a problem whose class with the most test samples, the same for every seed, is cut to ten samples."""
    local, label = problem.task.local, int(np.bincount(problem.test.labels).argmax())
    most = (round(RARE * (1 - VALIDATION)), round(RARE * VALIDATION))

    def cut(samples: Samples, count: int) -> Samples:
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(samples.labels == label))[:count]
        return Subset(samples, np.sort(np.concatenate([np.flatnonzero(samples.labels != label), rows])))

    own = Domain(cut(local.train, most[0]), cut(local.val, most[1]))
    return replace(problem, task=replace(problem.task, local=own), rare=label)


def with_strangers(problem: Problem) -> Problem:
    """Return a problem without the last three tenths of the user's classes, whose test samples are the strangers.

    Raises:
        ValueError: The user's classes are not the last ones.
    """
    task, test = problem.task, problem.test
    mine = sorted(task.local_labels)
    left = len(task.labels) - max(1, round(STRANGERS * len(mine)))
    if mine != list(range(mine[0], len(task.labels))) or left <= mine[0]:
        raise ValueError(f"the user's classes must be the last ones, got {mine}")

    def kept(samples: Samples) -> Samples:
        return Subset(samples, np.flatnonzero(samples.labels < left))

    own = Domain(kept(task.local.train), kept(task.local.val))
    fewer = replace(task, local=own, labels=task.labels[:left], local_labels=tuple(range(mine[0], left)))
    strangers = Subset(test, np.flatnonzero(test.labels >= left))
    return replace(problem, task=fewer, test=kept(test), strangers=strangers)
