"""Tail edits made by the plugins' lowerings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from tuner.backends.base import Lowering
from tuner.backends.torch.trial.evolving import Evolving, evolving
from tuner.errors import TrainingError
from tuner.plan.trial import TrialPlan


@dataclass(frozen=True, slots=True, eq=False)
class EditedTail:
    """A tail with every edit of a plan made.

    Attributes:
        tail: Result of the last edit.
        evolving: Modules that change while the tail trains, by the kind of the edit that made them.
    """

    tail: nn.Module
    evolving: Mapping[str, tuple[Evolving, ...]]

    def records(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """Return what a bundle records of changes made while training, by the kind of edit; see `Evolving.record`.

        Args:
            model: The whole model, whose modules the tail shares.
        """
        names = {module: name for name, module in model.named_modules()}
        return {
            kind: {name: value for module in modules for name, value in module.record(names).items()}
            for kind, modules in self.evolving.items()
        }


def edited(tail: nn.Module, plan: TrialPlan, lowerings: Mapping[str, Lowering]) -> EditedTail:
    """Make every edit of the plan, in its order.

    Args:
        tail: The blocks that train.
        plan: Its edits.
        lowerings: How plugins realise edits, by kind.

    Raises:
        TrainingError: No plugin realises an edit.
    """
    by_kind: dict[str, tuple[Evolving, ...]] = {}
    for edit in plan.shape:
        if edit.kind not in lowerings:
            raise TrainingError(f"no installed plugin realises the plan's edit {edit.kind!r}: see `tuner plugins`")
        before = evolving(tail)
        tail = lowerings[edit.kind](tail, dict(edit.settings))
        added = tuple(module for module in evolving(tail) if not any(module is known for known in before))
        if added:
            by_kind[edit.kind] = (*by_kind.get(edit.kind, ()), *added)
    return EditedTail(tail, by_kind)


def edit_tail(tail: nn.Module, plan: TrialPlan, lowerings: Mapping[str, Lowering]) -> nn.Module:
    """Return the tail with every edit of the plan made; see `edited`."""
    return edited(tail, plan, lowerings).tail
