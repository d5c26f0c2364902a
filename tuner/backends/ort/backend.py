"""The ONNX Runtime backend. This module loads no tensor library: its methods do, in a child process."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tuner.backends.base import Report, silent
from tuner.backends.torch import TorchBackend
from tuner.plan import TrialPlan
from tuner.results.records import Outcome
from tuner.store.store import Store
from tuner.task import Task


class OrtBackend(TorchBackend):
    """Trains with the ordinary onnxruntime, in a step that PyTorch traces; in all else the PyTorch backend."""

    name = "onnxruntime"
    preload: ClassVar[Sequence[str]] = (*TorchBackend.preload, "tuner.backends.torch.exported")

    def supports(self, plan: TrialPlan) -> str | None:
        """Return why this backend cannot carry the plan out, or None."""
        if plan.shape:
            return f"backend onnxruntime writes the step once: no {plan.shape[0].kind}; --backend torch can"
        if plan.heads.exits:
            return "backend onnxruntime trains no exits; --backend torch does"
        if plan.recipe.micro_batches > 1:
            return "backend onnxruntime trains on whole batches: recipe.micro_batches is 1; --backend torch cuts them"
        return super().supports(plan)

    def plan_step(self, task: Task, plan: TrialPlan) -> None:
        """Return nothing: ONNX Runtime arranges its memory itself."""

    def train(
        self, task: Task, plan: TrialPlan, seed: int, store: Store, weights: Path, report: Report = silent
    ) -> Outcome:
        """Train the tail."""
        from tuner.backends.torch.exported import OrtLoop
        from tuner.backends.torch.model import load
        from tuner.backends.torch.training import run

        loaded = load(task, plan.model)
        return run(task, loaded, plan, seed, store, weights, report, self._lowerings(), OrtLoop)
