"""Targets, standardised: what the model learns has mean 0 and deviation 1, whatever their unit."""

from dataclasses import replace

import numpy as np

from tuner.arrays import Labels
from tuner.errors import TaskError
from tuner.targets import TargetScale
from tuner.task.data.samples import Samples, with_labels
from tuner.task.task import Task


def standardised(task: Task, scale: TargetScale | None = None) -> Task:
    """Return a task whose targets are standardised by a scale, and which says so.

    Without a scale it is that of all training targets: of the global ones alone where the local data has none.

    Raises:
        TaskError: The training targets of an output are all the same.
    """
    scale = _scale_of(task) if scale is None else scale
    before = task.scale

    def rescaled(samples: Samples) -> Samples:
        return with_labels(samples, _rescaled(samples.labels, before, scale))

    global_ = None if task.global_ is None else task.global_.mapped(rescaled)
    return replace(task, local=task.local.mapped(rescaled), global_=global_, scale=scale)


def _scale_of(task: Task) -> TargetScale:
    domains = [task.local] * task.labelled + ([] if task.global_ is None else [task.global_])
    targets = np.concatenate([domain.train.labels for domain in domains]).astype(np.float64)
    mean, std = targets.mean(axis=0), targets.std(axis=0)
    constant = np.flatnonzero(std == 0)
    if len(constant):
        raise TaskError(
            f"{task.name}: the training targets of {task.labels[constant[0]]!r} are all {mean[constant[0]]:g}, so that "
            "there is nothing to learn: leave this output out, or give other samples"
        )
    return TargetScale(tuple(mean.tolist()), tuple(std.tolist()))


def _rescaled(labels: Labels, before: TargetScale | None, after: TargetScale) -> Labels:
    values = labels.astype(np.float64)
    if before is not None:
        values = values * np.array(before.std) + np.array(before.mean)
    return np.asarray(((values - np.array(after.mean)) / np.array(after.std)).astype(np.float32))
