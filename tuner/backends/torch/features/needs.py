"""Which records plans need, and which of them a store lacks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.selection import (
    Selection,
    calibration_selection,
    pool_selections,
    scored_selections,
    shared_partition,
)
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_records
from tuner.store.files.disk import StoreFull
from tuner.task import Task

#: Cut and bits.
CutBits = tuple[int, int]
#: Indices of samples, by partition.
Indices = dict[str, set[int]]


def needed(task: Task, plans: Sequence[TrialPlan]) -> dict[CutBits, list[Selection]]:
    """Return, by cut and width, what the plans need; of several shares of a partition the largest."""
    by_width: dict[CutBits, dict[tuple[str, float], Selection]] = {}

    def need(at: CutBits, selections: Sequence[Selection], of: float = 1.0) -> None:
        own = by_width.setdefault(at, {})
        for one in selections:
            if len(own.get((one.partition, of), ())) < len(one):
                own[one.partition, of] = one

    for plan in plans:
        share = plan.data.share
        training = [shared_partition(task, "local.train", share), *pool_selections(task, plan)]
        thresholds = [calibration_selection(task, plan)] if plan.heads.exits else []
        of_all_trainings = replace(plan.data, fold=0)
        scored = [one for own in scored_selections(task, of_all_trainings).values() for one in own]
        for at in feature_records(plan):
            need(at, training)
        for cut in plan.cuts:
            need((cut, VALIDATION_BITS), scored)
            need((cut, VALIDATION_BITS), thresholds, of=share)  # of a larger share it takes others, not more
    return {at: list(own.values()) for at, own in by_width.items()}


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
