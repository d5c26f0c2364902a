"""A task in the numbers that a plan holds."""

import numpy as np

from tuner.plan.info import TaskInfo
from tuner.task.mixing import class_sizes
from tuner.task.task import Task

NOUNS = {"images": "images", "arrays": "samples", "signals": "windows"}


def task_info(task: Task) -> TaskInfo:
    """Return a task in numbers."""
    global_ = task.global_
    return TaskInfo(
        name=task.name,
        fingerprint=task.fingerprint(),
        local_train=len(task.local.train),
        local_val=len(task.local.val),
        global_per_class=class_sizes(global_.train) if global_ else (),
        global_val=len(global_.val) if global_ else 0,
        noun=NOUNS[task.input.kind],
        augment=task.augment,
        labelled=task.labelled,
        most_frequent=_most_frequent(task),
    )


def _most_frequent(task: Task) -> float:
    labels = task.local.val.labels
    if not task.labelled or labels.ndim > 1 or len(np.unique(labels)) == 1:
        return 0.0
    return float(np.bincount(labels).max() / len(labels))
