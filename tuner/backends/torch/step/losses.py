"""Losses of side heads that learn from labels or from the final head's answers."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from tuner.backends.torch.task_loss import CROSS_ENTROPY, StepLoss
from tuner.plan.heads import HeadsPlan


def exit_loss(
    outputs: torch.Tensor,
    teacher: torch.Tensor,
    labels: torch.Tensor,
    plan: HeadsPlan,
    loss: StepLoss = CROSS_ENTROPY,
) -> torch.Tensor:
    """Return one exit's loss; the formula is `HeadsPlan`'s.

    With several labels a sample, cross-entropy is binary, softened answers are one Bernoulli each, and hard answers
    are those with p > 0.5; the divergence is then a mean over labels. Of a regression all are the task's loss, of the
    targets and of the final head's values.

    Args:
        outputs: float32 [n, classes], the exit's logits.
        teacher: float32 [n, classes], the final head's.
        labels: int64 [n], or float32 [n, classes].
        plan: The weights and the temperature.
        loss: The task's loss; labels are not smoothed.
    """
    if loss.kind == "regression":  # what the final head says is one answer, neither hard nor softened
        return plan.supervised * loss.mean(outputs, labels) + plan.distilled * loss.mean(outputs, teacher)
    total = outputs.new_zeros(())
    if plan.supervised:
        total = total + plan.supervised * _hard(outputs, labels, loss)
    if plan.pseudo:
        answers = teacher.argmax(dim=1) if loss.kind == "single-label" else (teacher > 0).to(outputs.dtype)
        total = total + plan.pseudo * _hard(outputs, answers, loss)
    if plan.distilled:
        divergence = _bernoulli if loss.kind == "multi-label" else _soft
        total = total + plan.distilled * plan.temperature**2 * divergence(outputs, teacher, plan.temperature)
    return total


@dataclass(frozen=True, slots=True)
class ExitLoss:
    """An exit's loss for a traced step: its targets are one input, wherever they come from.

    It is `exit_loss` but for the entropy of the targets, which no weight of the exit moves.

    Attributes:
        plan: Weights and temperature.
        loss: The task's loss; labels are not smoothed.
    """

    plan: HeadsPlan
    loss: StepLoss

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return each sample's loss, float32 [n].

        Args:
            outputs: float32 [n, classes], the exit's logits.
            targets: float32 [n, 2 · classes]: probabilities of the hard answer, then of the softened one, or values;
                see `tuner.runtime.train.exit_targets.exit_targets`.
        """
        hard, soft = targets.chunk(2, dim=1)
        plan, total = self.plan, outputs.new_zeros(len(outputs))
        if weight := plan.supervised + plan.pseudo:  # one of them is 0
            total = total + weight * self._cross(outputs, hard)
        if plan.distilled:
            total = total + plan.distilled * plan.temperature**2 * self._cross(outputs / plan.temperature, soft)
        return total

    def _cross(self, outputs: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
        if self.loss.kind != "single-label":
            return self.loss.losses(outputs, probabilities)
        return -(probabilities * functional.log_softmax(outputs, dim=1)).sum(1)


def _hard(outputs: torch.Tensor, answers: torch.Tensor, loss: StepLoss) -> torch.Tensor:
    return functional.cross_entropy(outputs, answers) if loss.kind == "single-label" else loss.mean(outputs, answers)


def _soft(outputs: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return KL(teacher ‖ exit), the mean over samples."""
    return functional.kl_div(
        functional.log_softmax(outputs / temperature, dim=1),
        functional.log_softmax(teacher / temperature, dim=1),
        reduction="batchmean",
        log_target=True,
    )


def _bernoulli(outputs: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return KL(teacher ‖ exit) of one Bernoulli a label, the mean over samples and labels."""
    ours, theirs = outputs / temperature, teacher / temperature
    share = torch.sigmoid(theirs)
    log, other = functional.logsigmoid, torch.neg
    yes = share * (log(theirs) - log(ours))
    no = (1 - share) * (log(other(theirs)) - log(other(ours)))
    return (yes + no).mean()
