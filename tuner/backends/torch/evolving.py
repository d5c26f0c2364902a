"""Tails that change while they train: what the loop tells them, and what they answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What an evolving tail is told before the first step.

    Attributes:
        optimiser: Of the tail's parameters; a parameter that is replaced is replaced in it.
        example: Inputs of the tail, float32 [n, ...].
        loss: Mean loss of a tail on a fixed batch of training samples, in evaluation mode; a scalar with its graph.
        steps: Of one epoch.
        seed: Of the trial.
    """

    optimiser: torch.optim.Optimizer
    example: torch.Tensor
    loss: Callable[[nn.Module], torch.Tensor]
    steps: int
    seed: int


@runtime_checkable
class Evolving(Protocol):
    """A module, made by a lowering, that the loop calls around its steps and epochs.

    Attributes:
        fresh_norms: Whether its norms have no statistics worth keeping, so that they train whatever the recipe says.
    """

    fresh_norms: bool

    @property
    def widths(self) -> dict[str, int]:
        """The widths it has now, by module."""

    def begin(self, training: Training) -> None:
        """Prepare for the first step."""

    def before_update(self, loss: float) -> None:
        """See the gradients of a batch, and its loss; they may be changed."""

    def after_update(self) -> None:
        """Follow a step of the optimiser."""

    def after_epoch(self, epoch: int) -> dict[str, float]:
        """Change between epochs; return what goes into the epoch's log. `epoch` counts from 1."""

    def finish(self) -> tuple[str, ...]:
        """Become what is scored, written and exported; return notes for the trial's record."""


def evolving(tail: nn.Module) -> list[Evolving]:
    """Return the modules of a tail that change while it trains."""
    return [module for module in tail.modules() if isinstance(module, Evolving)]
