"""The PyTorch backend. This module loads no tensor library: `TorchBackend.open` does, in a child process."""

from collections.abc import Sequence
from typing import ClassVar

from tuner.backends.base import Backend, Session
from tuner.backends.extensions import Extensions
from tuner.plan.trial import TrialPlan
from tuner.planner.tail_terms import planned_executor
from tuner.task import InputDefaults, ModelSpec, Task

EXITS = "exits that train by steps"


class TorchBackend(Backend):
    """Trains with PyTorch on the processor."""

    name = "torch"
    preload: ClassVar[Sequence[str]] = (
        "torch",
        "torch.fx.experimental.symbolic_shapes",  # shape propagation imports it: once here instead of in every child
        "torch.utils.flop_counter",
        "tuner.backends.torch.session",
        "tuner.backends.torch.trial.tail",
        "tuner.backends.torch.engines.eager",
        "tuner.backends.torch.measure",
    )

    def supports(self, plan: TrialPlan) -> str | None:
        """Return why PyTorch cannot carry the plan out, or None."""
        if plan.heads.joint and plan.shape:
            return (
                f"exits train together with a tail as the model has it: set exits.joint to 0, or leave tail edit "
                f"{plan.shape[0].kind!r} out"
            )
        if reason := _too_few_for_norms(plan):
            return reason
        if plan.heads.exits and (plan.data.weight != 1 or plan.data.balance or plan.data.batches):
            return (
                "exits train with all samples alike, and as they are: set data.weight to 1 and data.balance to false, "
                "and leave changes of batches out, or leave exits out"
            )
        if plan.data.batches and plan.loss:
            return (
                f"loss term {plan.loss[0].kind!r} reads samples and labels as they are, but "
                f"{plan.data.batches[0].kind!r} changes them: leave one of both out"
            )
        if not plan.task.labelled and plan.heads.mode != "exits-only":
            return "the local samples have no labels, so only exits can be trained: set exits.mode to 'exits-only'"
        return None

    def input_defaults(self, model: ModelSpec) -> InputDefaults | None:
        """Ask timm, Hugging Face or torchvision, each for its own models."""
        from tuner.backends.torch.model.published import input_defaults

        return input_defaults(model)

    def open(self, task: Task, extensions: Extensions) -> Session:
        """Build and trace the model, on one thread: a pool of threads would not survive a fork."""
        from tuner.backends.torch.engines.eager import EagerSteps
        from tuner.backends.torch.session import TorchSession

        executor = planned_executor()
        if executor is None:
            return TorchSession(task, extensions, EagerSteps)
        planned = executor.load()
        return TorchSession(task, extensions, planned.planned_or_eager, planned)


def _too_few_for_norms(plan: TrialPlan) -> str | None:
    """Return why batch norms that train would get too few samples at a time, or None."""
    if not plan.recipe.freeze_bn:
        what = "recipe.freeze_bn = false"
    elif plan.traits.trains_norms:
        what = f"tail edit {plan.shape[0].kind!r}"
    elif plan.heads.trains_norms:
        what = EXITS
    else:
        return None
    if plan.recipe.micro_batches > 1 and (plan.heads.joint or what != EXITS):
        return f"a batch norm that trains needs whole batches: with {what}, recipe.micro_batches must be 1"
    if plan.recipe.batch_size == 1:
        return f"a batch norm that trains needs several samples: with {what}, recipe.batch_size must be above 1"
    return None
