"""Records of 4, 2 and 1 bits, made from those of 8 bits without running the prefix."""

from collections.abc import Sequence
from dataclasses import replace

from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.selection import training_selections
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import CODED_BITS, feature_records
from tuner.store.disk import StoreFull
from tuner.store.records import BadRecord

DERIVED_AT_ONCE = 256


def derive(access: Access, plans: Sequence[TrialPlan]) -> None:
    """Write the plans' 4-, 2- and 1-bit records from the 8-bit ones; what has no room is derived when it is read."""
    for plan in plans:
        bits = plan.cache.bits
        for cut in [cut for cut, width in feature_records(plan) if width == CODED_BITS != bits]:
            try:
                _derive(access, plan, cut)
            except (StoreFull, LookupError) as error:
                access.report({"warning": f"{bits}-bit features of {plan.model.blocks[cut].cut}: {error}"})


def _derive(access: Access, plan: TrialPlan, cut: int) -> None:
    """Write one cut's records.

    Raises:
        StoreFull: There is no room.
        LookupError: The cut has no scales yet.
    """
    source, target = access.file(cut, CODED_BITS), access.file(cut, plan.cache.bits)
    training = training_selections(access.task, replace(plan, data=plan.pool))
    missing = target.missing([sample_id for selection in training for sample_id in selection.ids()])
    for begin in range(0, len(missing), DERIVED_AT_ONCE):
        ids = missing[begin : begin + DERIVED_AT_ONCE]
        try:
            codes = source.read(ids)
        except BadRecord as bad:  # reported, and computed again, when they are read
            ids = [sample_id for sample_id in ids if sample_id not in bad.sample_ids]
            codes = source.read(ids)
        target.append(ids, target.codec.narrow(codes))
