"""What a sample's label is: one class, several labels, or numbers; a class for each kind. Numpy alone."""

from collections.abc import Mapping

from tuner.targets.base import LossKind, LossSettings, Targets, TargetScale
from tuner.targets.multi_label import MultiLabel
from tuner.targets.regression import Regression
from tuner.targets.single_label import SingleLabel

__all__ = [
    "KINDS",
    "SINGLE_LABEL",
    "LossKind",
    "LossSettings",
    "MultiLabel",
    "Regression",
    "SingleLabel",
    "TargetScale",
    "Targets",
    "targets_of",
]

#: By the name in files.
KINDS: Mapping[str, type[Targets]] = {kind.name: kind for kind in (SingleLabel, MultiLabel, Regression)}
#: One class a sample, with the usual settings.
SINGLE_LABEL = SingleLabel()


def targets_of(
    name: LossKind, settings: LossSettings = SINGLE_LABEL.settings, scale: TargetScale | None = None
) -> Targets:
    """Return what a sample's label is, by its name in files."""
    return KINDS[name](settings, scale)
