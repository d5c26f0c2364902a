"""Losses of side heads that learn from labels or from the final head's answers."""

from dataclasses import dataclass

import torch

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

    What hard and softened answers are, and how far they are from the exit's, is the task's loss to say.

    Args:
        outputs: float32 [n, classes], the exit's logits.
        teacher: float32 [n, classes], the final head's.
        labels: int64 [n], or float32 [n, classes].
        plan: The weights and the temperature.
        loss: The task's loss; labels are not smoothed.
    """
    total = outputs.new_zeros(())
    if plan.supervised:
        total = total + plan.supervised * loss.hard(outputs, labels)
    if plan.pseudo:
        total = total + plan.pseudo * loss.hard(outputs, loss.answers(teacher))
    if plan.distilled:
        total = total + plan.distilled * plan.temperature**2 * loss.divergence(outputs, teacher, plan.temperature)
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
            total = total + weight * self.loss.cross(outputs, hard)
        if plan.distilled:
            total = total + plan.distilled * plan.temperature**2 * self.loss.cross(outputs / plan.temperature, soft)
        return total
