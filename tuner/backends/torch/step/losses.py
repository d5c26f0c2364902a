"""What steps minimise: the loss of a task, with the terms that plugins add to it, and those of side heads."""

from dataclasses import dataclass

import torch

from tuner.backends.extensions import Extensions
from tuner.backends.losses import LossError, LossFunction, LossInputs
from tuner.backends.torch.task_loss import CROSS_ENTROPY, StepLoss, torch_loss
from tuner.errors import call_extension
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import LossTerm
from tuner.plan.trial import TrialPlan
from tuner.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class ExtendedLoss:
    """A task's own loss, and what a plan's terms add to it, each with the plugin's function of its kind.

    `known` is that of `tuner.backends.losses.LossInputs`.
    """

    own: StepLoss
    terms: tuple[tuple[LossTerm, LossFunction], ...]
    known: int

    @property
    def has_teacher(self) -> bool:
        """Whether a term reads the given model's logits."""
        return any(term.teacher for term, _ in self.terms)

    def added(
        self, logits: torch.Tensor, labels: torch.Tensor, features: torch.Tensor, teacher: torch.Tensor | None
    ) -> torch.Tensor:
        """Return what the terms add to each sample's loss, float32 [n]; arguments as `LossInputs` has them."""
        total = logits.new_zeros(len(logits))
        for term, function in self.terms:
            answers = teacher if term.teacher else None
            inputs = LossInputs(logits, labels, features, answers, self.known, self.own.targets)
            total = total + term.weight * _losses(term, function, inputs)
        return total


def loss_of(task: Task, plan: TrialPlan, extensions: Extensions) -> StepLoss | ExtendedLoss:
    """Return what a plan's steps minimise: the task's own loss where the plan adds nothing to it."""
    own = torch_loss(task.targets.smoothed(plan.recipe.label_smoothing))
    if not plan.loss:
        return own
    terms = tuple((term, extensions.losses[term.kind]) for term in plan.loss)
    return ExtendedLoss(own, terms, len(task.head_rows))


def _losses(term: LossTerm, function: LossFunction, inputs: LossInputs) -> torch.Tensor:
    """Return a term's losses before its weight."""
    losses: object = call_extension(LossError, term.kind, function, inputs, dict(term.settings))
    count = len(inputs.logits)
    if not isinstance(losses, torch.Tensor) or list(losses.shape) != [count]:
        got = list(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise LossError(
            term.kind, f"it must return one loss per sample, [{count}], but it returned {got}: leave out .mean()"
        )
    return losses


def exit_loss(
    outputs: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor, plan: HeadsPlan, loss: StepLoss = CROSS_ENTROPY
) -> torch.Tensor:
    """Return one exit's loss, of its logits and the final head's, float32 [n, classes]; the formula is `HeadsPlan`'s.

    What hard and softened answers are, and how far they are from the exit's, is the task's loss to say; labels are not
    smoothed.
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
    """

    plan: HeadsPlan
    loss: StepLoss

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return each sample's loss, float32 [n], of logits [n, classes] and targets [n, 2 · classes].

        Targets are those of `tuner.runtime.train.exit_targets.exit_targets`: hard answers, then softened ones.
        """
        hard, soft = targets.chunk(2, dim=1)
        plan, total = self.plan, outputs.new_zeros(len(outputs))
        if weight := plan.supervised + plan.pseudo:  # one of them is 0
            total = total + weight * self.loss.cross(outputs, hard)
        if plan.distilled:
            total = total + plan.distilled * plan.temperature**2 * self.loss.cross(outputs / plan.temperature, soft)
        return total
