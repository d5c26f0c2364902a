"""A task in the numbers that a plan holds; and its outline, for processes that do not load it."""

from dataclasses import dataclass

import numpy as np

from tuner.plan.info import TaskInfo
from tuner.targets import LossKind, Targets, TargetScale, targets_of
from tuner.targets.strata import class_counts, presence
from tuner.task.copies import shared_samples
from tuner.task.data.readable import changed, left_out
from tuner.task.data.sessions import numbered
from tuner.task.inputs import input_kind
from tuner.task.mixing import class_sizes, mixed_sizes
from tuner.task.spec import InputSpec, LabelMap
from tuner.task.task import GivenTraining, Task


@dataclass(frozen=True, slots=True)
class TaskOutline:
    """A task without its samples and without its code.

    Attributes:
        info: The task in numbers.
        labels: Rows of the union head, as `Task.labels`.
        input: How samples become the model's input.
        input_shape: Shape of one sample, without the batch.
        loss: Name of what a sample's label is; see `targets`.
        notes: Lines on files of no kind that is read, that cannot be read, or that are changed, and the cautions of the
            task.
        local_labels: Rows that occur in the local data.
        known: Number of rows that the given model knew: the first ones.
        most_folds: Folds that the local training samples can be divided into: the samples of the smallest class; 0
            where several samples were cut from one recording.
        smallest_class: That class; empty where the samples have no labels of the user's.
        scale: What targets are standardised by; None where there are labels.
        given: Training that the task asks for, if any.
        label_map: As `Task.label_map`.
    """

    info: TaskInfo
    labels: tuple[str, ...]
    input: InputSpec
    input_shape: tuple[int, ...]
    loss: LossKind
    notes: tuple[str, ...] = ()
    local_labels: tuple[int, ...] = ()
    known: int = 0
    most_folds: int = 0
    smallest_class: str = ""
    scale: TargetScale | None = None
    given: GivenTraining | None = None
    label_map: LabelMap = ()

    @property
    def targets(self) -> Targets:
        """What a sample's label is."""
        return targets_of(self.loss, scale=self.scale)


def outline(task: Task) -> TaskOutline:
    """Return what other processes need to know of a task.

    Raises:
        TaskError: A sample cannot be read.
    """
    others = filter(None, (left_out(task.skipped), changed(task.notes), *task.cautions))
    lines = (*shared_samples(task), *task.findings, *others)
    rows = (task.local_labels, len(task.head_rows), *_possible_folds(task))
    scale = task.targets.default_scale(len(task.labels))
    own = (task_info(task), task.labels, task.input, task.input_shape, task.loss)
    return TaskOutline(*own, lines, *rows, scale, task.given, task.label_map)


def _possible_folds(task: Task) -> tuple[int, str]:
    """Return how many folds there can be, and the class that has no more samples."""
    samples, labels = task.local.train, task.local.train.labels
    origins = numbered([samples.origin(at) for at in range(len(samples))])
    apart, are_apart = int(origins.max()) + 1, int(origins.max()) + 1 == len(samples)
    if input_kind(task.input.kind).windowed and not are_apart:
        return 0, ""
    if not task.labelled or not task.targets.has_classes:
        return apart, ""
    sizes = (
        class_counts(labels, len(task.labels))
        if are_apart
        else [len(np.unique(origins[has])) for has in presence(labels, np.arange(len(task.labels))).T]
    )
    return min(((int(size), task.labels[row]) for row, size in enumerate(sizes) if size), default=(apart, ""))


def task_info(task: Task) -> TaskInfo:
    """Return a task in numbers."""
    global_ = task.global_
    labels, counted = task.local.val.labels, task.labelled and task.targets.one_class
    shares = np.bincount(labels) / len(labels) if counted and len(np.unique(labels)) > 1 else np.zeros(1)
    return TaskInfo(
        name=task.name,
        fingerprint=task.fingerprint(),
        local_train=len(task.local.train),
        local_val=len(task.local.val),
        global_per_class=class_sizes(global_.train) if global_ else (),
        global_val=len(global_.val) if global_ else 0,
        noun=input_kind(task.input.kind).noun,
        augment=task.augment,
        labelled=task.labelled,
        most_frequent=float(shares.max()),
        loss=task.loss,
        global_mixed=mixed_sizes(global_.train.labels) if global_ else (),
    )
