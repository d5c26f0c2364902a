"""Which records plans need, and which of them a store lacks."""

from collections.abc import Mapping, Sequence

from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.selection import (
    Selection,
    calibration_selection,
    mixed_selections,
    validation_selections,
    whole_partition,
)
from tuner.plan.trial import TrialPlan
from tuner.planner.cost import feature_records
from tuner.store.disk import StoreFull
from tuner.task import Task

#: Cut and bits.
CutBits = tuple[int, int]
#: Indices of samples, by partition.
Indices = dict[str, set[int]]


def needed(task: Task, plans: Sequence[TrialPlan]) -> dict[CutBits, list[Selection]]:
    """Return, by cut and width, what the plans need; of several fractions of the global data the largest."""
    by_width: dict[CutBits, list[Selection]] = {}
    for plan in sorted(plans, key=lambda plan: plan.data.alpha):
        for at in feature_records(plan):
            by_width[at] = [whole_partition(task, "local.train"), *mixed_selections(task, plan)]
    for plan in plans:
        thresholds = [calibration_selection(task)] if plan.heads.exits else []
        for cut in plan.cuts:
            at = cut, VALIDATION_BITS
            training = [part for part in by_width.get(at, []) if not part.partition.endswith(".val")]
            by_width[at] = [*training, *thresholds, *validation_selections(task)]
    return by_width


def absent(access: Access, at: CutBits, selections: Sequence[Selection]) -> Indices:
    """Return the samples that a file does not have."""
    indices: Indices = {}
    try:
        file = access.file(*at) if at[1] >= VALIDATION_BITS or access.scales(at[0]) else None
    except StoreFull:
        file = None
    for selection in selections:
        ids = selection.ids()
        missing = set(ids if file is None else file.missing(ids))
        pairs = zip(selection.indices, ids, strict=True)
        unstored = {int(index) for index, sample_id in pairs if sample_id in missing}
        if unstored:
            indices.setdefault(selection.partition, set()).update(unstored)
    return indices


def union(absences: Mapping[CutBits, Indices]) -> Indices:
    """Return the samples that any file does not have."""
    indices: Indices = {}
    for by_partition in absences.values():
        for partition, own in by_partition.items():
            indices.setdefault(partition, set()).update(own)
    return indices
