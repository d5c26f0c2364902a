"""Targets, standardised: what the model learns has mean 0 and deviation 1, whatever their unit."""

from dataclasses import replace

import numpy as np

from tuner.arrays import Labels
from tuner.targets import TargetScale
from tuner.task.data.samples import Samples, with_labels
from tuner.task.task import Task


def standardised(task: Task, scale: TargetScale | None = None) -> Task:
    """Return a task whose targets, if they are numbers, are standardised by a scale, and which says so.

    Without a scale it is that of all training targets: of the global ones alone where the local data has none.

    Raises:
        TaskError: The training targets of an output are all the same.
    """
    if scale is None:
        domains = [task.local] * task.labelled + ([] if task.global_ is None else [task.global_])
        targets = np.concatenate([domain.train.labels for domain in domains])
        scale = task.targets.scale_of(targets, task.labels, task.name)
    if scale is None:
        return task

    def rescaled(samples: Samples) -> Samples:
        return with_labels(samples, _rescaled(samples.labels, task.scale, scale))

    global_ = None if task.global_ is None else task.global_.mapped(rescaled)
    return replace(task, local=task.local.mapped(rescaled), global_=global_, scale=scale)


def _rescaled(labels: Labels, before: TargetScale | None, after: TargetScale) -> Labels:
    values = labels.astype(np.float64)
    if before is not None:
        values = values * np.array(before.std) + np.array(before.mean)
    return np.asarray(((values - np.array(after.mean)) / np.array(after.std)).astype(np.float32))
