"""The loss of a task, and the terms that plugins add to it."""

from dataclasses import dataclass

import torch

from tuner.backends.extensions import Extensions
from tuner.backends.losses import LossError, LossFunction, LossInputs
from tuner.backends.torch.task_loss import StepLoss, torch_loss
from tuner.errors import TunerError, first_line, place_of
from tuner.plan.parts import LossTerm
from tuner.plan.trial import TrialPlan
from tuner.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class ExtendedLoss:
    """A task's loss, and what a plan's terms add to it.

    Attributes:
        own: The task's loss.
        terms: The plan's terms, each with the plugin's function of its kind.
        known: See `tuner.backends.losses.LossInputs`.
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
        """Return what the terms add to each sample's loss, float32 [n]; arguments as `LossInputs` has them.

        Raises:
            LossError: A function raised, or did not return one loss per sample.
        """
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
    try:
        losses = function(inputs, dict(term.settings))
    except TunerError:
        raise
    except Exception as error:  # a plugin's function may raise anything
        raise LossError(term.kind, f"{first_line(error)}{place_of(error)}") from error
    count = len(inputs.logits)
    if not isinstance(losses, torch.Tensor) or list(losses.shape) != [count]:
        got = list(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise LossError(
            term.kind, f"it must return one loss per sample, [{count}], but it returned {got}: leave out .mean()"
        )
    return losses
