"""A task in the numbers that a plan holds; and its outline, for processes that do not load it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tuner.arrays import RowNumbers
from tuner.plan.info import TaskInfo
from tuner.targets import LossKind, Targets, TargetScale, targets_of
from tuner.targets.strata import class_counts, occurring, presence
from tuner.task.contents import TaskContents
from tuner.task.copies import shared_samples
from tuner.task.data.readable import changed, left_out
from tuner.task.data.samples import Samples
from tuner.task.data.sessions import numbered
from tuner.task.inputs import input_kind
from tuner.task.mixing import class_sizes, mixed_sizes
from tuner.task.spec import InputSpec, LabelMap
from tuner.task.task import GivenTraining, Task

#: As many classes without validation samples are named.
MOST_NAMED = 5
#: As many samples of a partition are looked at for their scale, and a factor by which none differs by chance.
MOST_LOADED, OTHER_SCALE = 64, 50


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
        most_folds: Folds that the local training samples can be divided into: the samples of the smallest class, or the
            recordings that these were cut from; 0 where windows of a class were all cut from one.
        smallest_class: That class; empty where the samples have no labels of the user's.
        fold_noun: What of that class is counted: its samples, or the recordings or sessions that they were taken in.
        scale: What targets are standardised by; None where there are labels.
        given: Training that the task asks for, if any.
        label_map: As `Task.label_map`.
        contents: What a run of the task depends on; its hash is the fingerprint.
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
    fold_noun: str = "samples"
    scale: TargetScale | None = None
    given: GivenTraining | None = None
    label_map: LabelMap = ()
    contents: TaskContents = field(default_factory=TaskContents)

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
    lines = (*shared_samples(task), *task.findings, *_unmeasured(task), *_scales(task), *others)
    rows = (task.local_labels, len(task.head_rows), *_possible_folds(task))
    scale = task.targets.default_scale(len(task.labels))
    contents = task.contents()
    own = (task_info(task, contents), task.labels, task.input, task.input_shape, task.loss)
    return TaskOutline(*own, lines, *rows, scale, task.given, task.label_map, contents)


def _unmeasured(task: Task) -> Iterator[str]:
    """Yield a warning of classes that are learned, and that no validation sample is of."""
    learned, judged = (set(occurring(one.labels)) for one in (task.local.train, task.local.val))
    names = [repr(task.labels[row]) for row in task.own_classes if row in learned - judged]
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        noun = input_kind(task.input.kind).noun
        yield (
            f"warning: local.val has no {noun} of {', '.join(names[:MOST_NAMED])}{more}, so whether these are right "
            f"is not measured: add {noun} of these to local.val, or further recordings or sessions to local.train"
        )


def _scales(task: Task) -> Iterator[str]:
    """Yield a warning of each partition whose numbers are far larger or smaller than those that are trained on."""
    if task.input.kind == "images":  # decoded alike, whatever the file
        return
    largest = dict[str, float]()
    for name, samples in task.partitions():
        some = (samples.load(at) for at in range(0, len(samples), max(1, len(samples) // MOST_LOADED)))
        largest[name] = max(float(np.abs(one).max()) / (255 if one.dtype == np.uint8 else 1) for one in some)
    train = largest["local.train"]
    for name, value in largest.items():
        if not train / OTHER_SCALE <= value <= train * OTHER_SCALE:
            yield (
                f"warning: the values of {name} are up to {value:.3g} and those of local.train up to {train:.3g} (of "
                "bytes: divided by 255), so scores mean little: bring both to one scale"
            )


def _recordings(samples: Samples) -> RowNumbers:
    """Return the number of the recording or session that each sample was taken in, from 0."""
    return numbered([samples.origin(at) for at in range(len(samples))])


def _possible_folds(task: Task) -> tuple[int, str, str]:
    """Return how many folds there can be, the class that has no more samples or sessions, and which of these."""
    samples, labels = task.local.train, task.local.train.labels
    origins, kind = _recordings(samples), input_kind(task.input.kind)
    apart, are_apart = int(origins.max()) + 1, int(origins.max()) + 1 == len(samples)
    noun, of_several = kind.noun, "recordings" if kind.windowed else "sessions"
    if not task.own_classes:
        return (0 if kind.windowed and not are_apart else apart), "", noun
    sizes = [(int(size), task.labels[row], noun) for row, size in enumerate(class_counts(labels, len(task.labels)))]
    if not are_apart:
        for row, has in enumerate(presence(labels, np.arange(len(task.labels))).T):
            if (several := len(np.unique(origins[has]))) > 1:  # a class of one session is divided photo by photo
                sizes[row] = several, task.labels[row], of_several
            elif kind.windowed and has.any():  # and one of windows that are too much alike is not divided
                return 0, "", noun
    return min((size for size in sizes if size[0]), default=(apart, "", noun))


def task_info(task: Task, contents: TaskContents | None = None) -> TaskInfo:
    """Return a task in numbers; its contents are read where they are not given."""
    global_ = task.global_
    return TaskInfo(
        name=task.name,
        fingerprint=(contents or task.contents()).fingerprint,
        local_train=len(task.local.train),
        local_val=len(task.local.val),
        global_per_class=class_sizes(global_.train) if global_ else (),
        global_val=len(global_.val) if global_ else 0,
        noun=input_kind(task.input.kind).noun,
        augment=task.augment,
        labelled=task.labelled,
        most_frequent=task.targets.most_frequent(task.local.val.labels) if task.labelled else 0.0,
        loss=task.loss,
        global_mixed=mixed_sizes(global_.train.labels) if global_ else (),
    )
