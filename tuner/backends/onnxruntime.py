"""The ONNX Runtime backend. This module loads no tensor library: `OrtBackend.open` does, in a child process."""

from collections.abc import Sequence
from typing import ClassVar, get_args

from tuner.backends.base import Session
from tuner.backends.extensions import Extensions
from tuner.backends.torch.backend import TorchBackend
from tuner.plan.parts import Optimiser
from tuner.plan.trial import TrialPlan
from tuner.task import Task


class OrtBackend(TorchBackend):
    """Trains with the ordinary onnxruntime, in a step that PyTorch traces; in all else the PyTorch backend."""

    name = "onnxruntime"
    preload: ClassVar[Sequence[str]] = (*TorchBackend.preload, "tuner.backends.torch.engines.onnxruntime")

    def supports(self, plan: TrialPlan) -> str | None:
        """Return why this backend cannot carry the plan out, or None."""
        changing = next((edit.kind for edit in plan.shape if not edit.traits.traceable), None)
        if changing is not None:
            return (
                f"backend onnxruntime cannot train a tail that edit {changing!r} changes, as a step is written once "
                "and keeps its gradients to itself: use --backend torch"
            )
        if plan.data.batches:
            change = plan.data.batches[0].kind
            return f"backend onnxruntime does not make the change of batches {change!r}: use --backend torch"
        if plan.recipe.optimiser not in get_args(Optimiser):
            return f"backend onnxruntime does not have optimiser {plan.recipe.optimiser!r}: use --backend torch"
        if plan.heads.exits and (plan.heads.joint or not plan.heads.ridge):
            return (
                "backend onnxruntime cannot train exits by steps, only solve for them: set exits.head to 'closed-form' "
                "and exits.joint to 0, or use --backend torch"
            )
        if plan.recipe.micro_batches > 1:
            return "backend onnxruntime trains on whole batches: set recipe.micro_batches to 1, or use --backend torch"
        return super().supports(plan)

    def open(self, task: Task, extensions: Extensions) -> Session:
        """Build and trace the model, on one thread; ONNX Runtime arranges a step's memory itself: none is planned."""
        from tuner.backends.torch.engines.onnxruntime import OrtSteps
        from tuner.backends.torch.onnx.write import writer
        from tuner.backends.torch.session import TorchSession

        writer()  # imported once here instead of in every child
        return TorchSession(task, extensions, OrtSteps, always_traces=True)
