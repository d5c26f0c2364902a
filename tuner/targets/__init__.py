"""What a sample's label is: one class, several labels, or numbers; a class for each kind. Numpy alone."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuner.targets.base import LossKind, LossSettings, Targets, TargetScale
from tuner.targets.single_label import SingleLabel

if TYPE_CHECKING:
    from tuner.targets.multi_label import MultiLabel
    from tuner.targets.regression import Regression

    #: By the name in files.
    KINDS: Mapping[str, type[Targets]]

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

#: Modules of the kinds by their names in files, and the names of the classes.
_HOMES: Mapping[LossKind, tuple[str, str]] = {
    "single-label": ("single_label", "SingleLabel"),
    "multi-label": ("multi_label", "MultiLabel"),
    "regression": ("regression", "Regression"),
}
#: One class a sample, with the usual settings.
SINGLE_LABEL = SingleLabel()


def targets_of(
    name: LossKind, settings: LossSettings = SINGLE_LABEL.settings, scale: TargetScale | None = None
) -> Targets:
    """Return what a sample's label is, by its name in files."""
    return _kind(name)(settings, scale)


def _kind(name: LossKind) -> type[Targets]:
    module, class_ = _HOMES[name]
    kind: type[Targets] = getattr(import_module(f"tuner.targets.{module}"), class_)
    return kind


def __getattr__(name: str) -> Any:
    """Import other kinds than the usual one on first use: a process that predicts needs one."""
    kinds = {class_: kind for kind, (_, class_) in _HOMES.items()}
    if name == "KINDS":
        return {kind: _kind(kind) for kind in _HOMES}
    if name not in kinds:
        raise AttributeError(f"module 'tuner.targets' has no attribute {name!r}")
    return _kind(kinds[name])
