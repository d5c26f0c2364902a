"""The PyTorch backend. This module loads no tensor library: `TorchBackend.open` does, in a child process."""

from collections.abc import Sequence
from typing import ClassVar

from tuner.backends.base import Backend, Session
from tuner.backends.extensions import Extensions
from tuner.plan.parts import EVEN
from tuner.plan.trial import TrialPlan
from tuner.task import Task


class TorchBackend(Backend):
    """Trains with PyTorch on the processor."""

    name = "torch"
    preload: ClassVar[Sequence[str]] = (
        "torch",
        "torch.fx.experimental.symbolic_shapes",  # shape propagation imports it: once here instead of in every child
        "torch.utils.flop_counter",
        "tuner.backends.torch.session",
        "tuner.backends.torch.trial.run",
        "tuner.backends.torch.engines.planned",
        "tuner.backends.torch.measure",
    )

    def supports(self, plan: TrialPlan) -> str | None:
        """Return why PyTorch cannot carry the plan out, or None."""
        traits = plan.traits
        joint = plan.heads.joint > 0  # the exits' norms
        if plan.recipe.micro_batches > 1 and (traits.trains_norms or joint or not plan.recipe.freeze_bn):
            by = "exits that train with the tail" if joint else f"tail edit {plan.shape[0].kind!r}" if plan.shape else ""
            what = by if plan.recipe.freeze_bn else "recipe.freeze_bn = false"
            return f"a batch norm that trains needs whole batches: with {what}, recipe.micro_batches must be 1"
        if plan.heads.exits and plan.data.emphasis != EVEN:
            return (
                "exits train with all samples alike: set data.weight to 1 and data.balance to false, or leave exits out"
            )
        if plan.heads.exits and not traits.keeps_weights:
            kind = next(edit.kind for edit in plan.shape if not edit.traits.keeps_weights)
            return f"exits cannot be trained next to tail edit {kind!r}, which changes layers: leave one of them out"
        if not plan.task.labelled and plan.heads.mode != "exits-only":
            return "the local samples have no labels, so only exits can be trained: set exits.mode to 'exits-only'"
        return None

    def open(self, task: Task, extensions: Extensions) -> Session:
        """Build and trace the model, on one thread: a pool of threads would not survive a fork."""
        from tuner.backends.torch.engines.planned import planned_or_eager
        from tuner.backends.torch.session import TorchSession

        return TorchSession(task, extensions, planned_or_eager, plans_steps=True)
