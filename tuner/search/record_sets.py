"""What a filling pass writes for a plan."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tuner.plan.parts import Precision
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import CODED_BITS, feature_records


class RecordSet(NamedTuple):
    """Records of one cut at one width; with exits, of their calibration samples too; with folds, to score them all.

    Exits that are calibrated out of fold take all local samples. A pass also learns what the exits at a cut begin with.
    """

    cut: int
    bits: int
    for_exits: bool
    for_folds: bool = False
    out_of_fold: bool = False
    begun_with: int | None = None
    precision: Precision = "fp32"


@dataclass(frozen=True, slots=True)
class FilledRange:
    """What is stored of one record set.

    Attributes:
        share: Share of the local samples and of those for validation that are stored.
        mixed: Fraction of the global training data that is stored.
        folders: Folders of the record files.
    """

    share: float
    mixed: float
    folders: tuple[Path, ...]


def record_sets(plan: TrialPlan) -> set[RecordSet]:
    """Return what a filling pass writes for a plan."""
    precision = plan.runtime.precision
    sets = {RecordSet(cut, bits, for_exits=False, precision=precision) for cut, bits in feature_records(plan)}
    if plan.heads.exits:
        of_all = plan.heads.out_of_fold
        sets |= {RecordSet(cut, bits, for_exits=True, out_of_fold=of_all) for cut, bits in feature_records(plan)}
    if plan.heads.global_weight:
        sets |= {
            RecordSet(place.block, max(CODED_BITS, plan.cache.bits), for_exits=True, begun_with=place.channels)
            for place in plan.heads.exits
        }
    if plan.data.folds:
        sets |= {one._replace(for_folds=True) for one in sets if not one.for_exits}
    return sets
