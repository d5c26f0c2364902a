"""Fixed batches of samples: they always run together, so that a refill gives the same bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tuner.planner.device import FILL_BATCH
from tuner.task import Task
from tuner.task.mixing import filling_order
from tuner.training.schedule import batches_of


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbours in a partition's filling order: they always run together, so that a refill gives the same bytes.

    Attributes:
        partition: Its name: ``"local.train"``.
        indices: Indices of its samples.
    """

    partition: str
    indices: tuple[int, ...]


def batches(task: Task, wanted: Mapping[str, set[int]]) -> Iterator[Batch]:
    """Yield the fixed batches that hold any wanted sample.

    Args:
        task: Its partitions.
        wanted: Indices by partition.
    """
    for name, samples in task.partitions():
        asked = wanted.get(name)
        if not asked:
            continue
        for rows in batches_of(filling_order(samples.labels), FILL_BATCH):
            if not asked.isdisjoint(rows.tolist()):
                yield Batch(name, tuple(rows.tolist()))


def exactly(wanted: Mapping[str, set[int]]) -> Iterator[Batch]:
    """Yield batches of just the wanted samples: for what is not kept, where the neighbours would run in vain."""
    for name, asked in wanted.items():
        for rows in batches_of(np.array(sorted(asked), np.int64), FILL_BATCH):
            yield Batch(name, tuple(rows.tolist()))
