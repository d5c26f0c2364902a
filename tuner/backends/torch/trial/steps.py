"""The steps of a trial, whichever engine runs them."""

from collections.abc import Callable

import torch
from torch import nn

from tuner.backends.extensions import Extensions
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.plan.trial import TrialPlan
from tuner.task import Task
from tuner.training.steps import Steps


class TrialSteps(Steps):
    """Trains a tail.

    Attributes:
        notes: What the user should know of how the steps run.
        example: One input of the tail, float32 [1, ...].
    """

    notes: tuple[str, ...] = ()
    example: torch.Tensor

    def finish(self) -> tuple[str, ...]:
        """Let the tail become what is scored and written; return notes for the trial's record."""
        return ()


#: Takes the task, the plan, the tail, its inputs, a seed, and what plugins add.
TrialStepsFactory = Callable[[Task, TrialPlan, nn.Module, TailInputs, int, Extensions], TrialSteps]
