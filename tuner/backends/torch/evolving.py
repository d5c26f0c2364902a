"""Tails that change while they train: what the loop tells them, and what they answer."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.backends.memory import PeakMeter
from tuner.backends.torch.model import saved_bytes
from tuner.plan import RecipePlan, TrialPlan
from tuner.planner.cost import FLOAT_BYTES, STATE_COPIES, TRAIN_PASSES
from tuner.planner.lifetimes import Tensor
from tuner.planner.step import StepPlan


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What an evolving tail is told before the first step.

    Attributes:
        optimiser: Of the tail's parameters; a parameter that is replaced is replaced in it.
        example: Inputs of the tail, float32 [n, ...].
        loss: Mean loss of a tail on a fixed batch of training samples, in evaluation mode; a scalar with its graph.
        steps: Of one epoch.
        seed: Of the trial.
        recipe: How it trains.
    """

    optimiser: torch.optim.Optimizer
    example: torch.Tensor
    loss: Callable[[nn.Module], torch.Tensor]
    steps: int
    seed: int
    recipe: RecipePlan = field(default_factory=RecipePlan)


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

    def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:
        """Change between epochs; return what goes into the epoch's log.

        Args:
            epoch: That ended, counted from 1.
            room: Bytes that training may still take beyond its peak so far; None for no limit.
        """

    def state(self) -> dict[str, Any]:
        """Return what it knows between epochs beside its weights, in tensors, numbers, text, lists and dicts."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with the weights of then."""

    def finish(self) -> tuple[str, ...]:
        """Become what is scored, written and exported; return notes for the trial's record."""


def evolving(tail: nn.Module) -> list[Evolving]:
    """Return the modules of a tail that change while it trains."""
    return [module for module in tail.modules() if isinstance(module, Evolving)]


def room(plan: TrialPlan, meter: PeakMeter) -> int | None:
    """Return the bytes that a plan's limit leaves above the peak so far; None where it has none."""
    limit = plan.runtime.memory_bytes
    return max(0, limit - meter.peak_bytes()) if limit else None


def first_step(tail: nn.Module, plan: TrialPlan) -> StepPlan:
    """Return the step that a tail starts with, as the eager loop runs it: nothing is freed before backward.

    Args:
        tail: With its edits made.
        plan: Its split, recipe and samples.
    """
    shape = plan.model.blocks[plan.split].in_shape
    batch = min(plan.recipe.part_size, plan.train_samples)
    tail.eval()
    with FlopCounterMode(display=False) as counter:
        kept = saved_bytes(tail, torch.zeros(1, *shape))
    state = FLOAT_BYTES * STATE_COPIES[plan.recipe.optimiser] * sum(one.numel() for one in tail.parameters())
    tensors = (
        Tensor("gradients and the optimiser's state", state, 0, 1, "state"),
        Tensor("kept for backward", batch * kept, 0, 1, "saved"),
        Tensor("batch", batch * FLOAT_BYTES * math.prod(shape), 0, 1, "input"),
    )
    return StepPlan(tensors, ("forward", "backward"), int(TRAIN_PASSES * batch * counter.get_total_flops()))
