"""The loss of a task, for whatever trains on it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from tuner.metrics import LossKind
from tuner.plan.parts import RecipePlan
from tuner.task import LossSettings, Task
from tuner.task.spec import USUAL_LOSS

#: Takes logits and labels; returns the mean loss of a batch.
MeanLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class StepLoss:
    """The loss of a task.

    Attributes:
        kind: `single-label`: cross-entropy, labels int64 [n]; `multi-label`: binary cross-entropy with logits, labels
            float32 [n, outputs]; `regression`: squared error or Huber's loss, targets float32 [n, outputs].
        settings: Its settings.
    """

    kind: LossKind
    settings: LossSettings = USUAL_LOSS

    @classmethod
    def of(cls, task: Task, recipe: RecipePlan | None = None) -> "StepLoss":
        """Return a task's loss, with a recipe's label smoothing where the task has none of its own."""
        settings = task.loss_settings
        if recipe is not None and not settings.label_smoothing:
            settings = replace(settings, label_smoothing=recipe.label_smoothing)
        return cls(task.loss, settings)

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return each sample's loss, float32 [n]."""
        if self.kind == "regression":
            return self._errors(logits, labels).mean(1)
        if self.kind == "multi-label":
            return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1)
        smoothing = self.settings.label_smoothing
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)

    def mean(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch."""
        if self.kind == "regression":
            return self._errors(logits, labels).mean()
        if self.kind == "multi-label":
            return functional.binary_cross_entropy_with_logits(logits, labels)
        return functional.cross_entropy(logits, labels, label_smoothing=self.settings.label_smoothing)

    def zeros(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return labels for a batch that nothing is learned from: of class 0, or zeros like the outputs."""
        if self.kind == "single-label":
            return torch.zeros(len(outputs), dtype=torch.int64)
        return torch.zeros_like(outputs)

    def _errors(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of each output, float32 [n, outputs]: `torch.nn.MSELoss`, or `torch.nn.HuberLoss`."""
        error, delta = outputs - targets, self.settings.delta
        if delta is None:
            return error.square()
        # Of operators that steps are traced with; below delta it is error² / 2, above it a line.
        size = functional.relu(error) + functional.relu(-error)
        inner = size - functional.relu(size - delta)
        return inner * (size - inner / 2)


#: The loss of a task that says nothing else.
CROSS_ENTROPY = StepLoss("single-label")
