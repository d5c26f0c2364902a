"""The loss of a task in PyTorch, by what a sample's label is."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch.nn import functional

from tuner.targets import MultiLabel, Regression, SingleLabel, Targets

#: Takes logits and labels; returns the mean loss of a batch.
MeanLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class StepLoss(ABC):
    """The loss of a task; labels are as its targets have them, with the settings of the loss."""

    targets: Targets

    @abstractmethod
    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return each sample's loss, float32 [n]."""

    @abstractmethod
    def mean(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch."""

    def zeros(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return labels for a batch that nothing is learned from."""
        return torch.zeros_like(outputs)

    def hard(self, logits: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch of labels or answers, which are not smoothed."""
        return self.mean(logits, answers)

    def cross(self, logits: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
        """Return each sample's loss of answers that are given as probabilities, or values, [n, outputs]."""
        return self.losses(logits, probabilities)

    def answers(self, logits: torch.Tensor) -> torch.Tensor:
        """Return what logits answer, as labels."""
        return logits

    @abstractmethod
    def divergence(self, logits: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
        """Return how far logits are from a teacher's, softened by a temperature; the mean over a batch."""


@dataclass(frozen=True, slots=True)
class _CrossEntropy(StepLoss):
    """Labels int64 [n]; the divergence is KL(teacher ‖ logits)."""

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = self.targets.settings.label_smoothing
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)

    def mean(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, labels, label_smoothing=self.targets.settings.label_smoothing)

    def zeros(self, outputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(outputs), dtype=torch.int64)

    def hard(self, logits: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, answers)

    def cross(self, logits: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
        return -(probabilities * functional.log_softmax(logits, dim=1)).sum(1)

    def answers(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.argmax(dim=1)

    def divergence(self, logits: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
        return functional.kl_div(
            functional.log_softmax(logits / temperature, dim=1),
            functional.log_softmax(teacher / temperature, dim=1),
            reduction="batchmean",
            log_target=True,
        )


@dataclass(frozen=True, slots=True)
class _BinaryCrossEntropy(StepLoss):
    """Labels float32 [n, outputs]; the divergence is the mean KL of one Bernoulli a label."""

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1)

    def mean(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(logits, labels)

    def answers(self, logits: torch.Tensor) -> torch.Tensor:
        return (logits > 0).to(logits.dtype)

    def divergence(self, logits: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
        ours, theirs = logits / temperature, teacher / temperature
        share, logsigmoid = torch.sigmoid(theirs), functional.logsigmoid
        has = share * (logsigmoid(theirs) - logsigmoid(ours))
        lacks = (1 - share) * (logsigmoid(-theirs) - logsigmoid(-ours))
        return (has + lacks).mean()


@dataclass(frozen=True, slots=True)
class _Errors(StepLoss):
    """Labels float32 [n, outputs]; `torch.nn.MSELoss`, or `torch.nn.HuberLoss`, of labels and teachers alike."""

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self._each(logits, labels).mean(1)

    def mean(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self._each(logits, labels).mean()

    def divergence(self, logits: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:  # noqa: ARG002
        return self.mean(logits, teacher)

    def _each(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of each output, float32 [n, outputs]."""
        error, delta = outputs - targets, self.targets.settings.delta
        if delta is None:
            return error.square()
        # Of operators that steps are traced with; below delta it is error² / 2, above it a line.
        size = functional.relu(error) + functional.relu(-error)
        inner = size - functional.relu(size - delta)
        return inner * (size - inner / 2)


@singledispatch
def torch_loss(targets: Targets) -> StepLoss:
    """Return the loss that a task's tail learns by."""
    raise NotImplementedError(f"{targets.name} has no loss in PyTorch: register one with torch_loss")


torch_loss.register(SingleLabel, _CrossEntropy)
torch_loss.register(MultiLabel, _BinaryCrossEntropy)
torch_loss.register(Regression, _Errors)

#: The loss of a task that says nothing else.
CROSS_ENTROPY = torch_loss(SingleLabel())
