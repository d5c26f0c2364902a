"""Tails that change while they train: the protocol between the training loop and their modules."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.backends.torch.model.blocks import saved_bytes
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.cost import STATE_COPIES
from tuner.planner.device import FLOAT_BYTES, TRAIN_PASSES
from tuner.planner.memory.lifetimes import Tensor
from tuner.planner.memory.step import StepPlan
from tuner.process_memory import PeakMeter

#: Takes a module, returns a mean loss: a scalar with its graph.
TailLoss = Callable[[nn.Module], torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What an evolving module receives before the first step.

    Attributes:
        optimiser: Optimiser of the tail's parameters; a parameter that is replaced must be replaced in it.
        example: Inputs of the module, float32 [n, ...].
        loss: Mean loss on a fixed batch of training samples, in evaluation mode, with another module in its place.
        steps: Optimiser steps in one epoch.
        seed: Trial's seed.
        recipe: How the tail trains.
    """

    optimiser: torch.optim.Optimizer
    example: torch.Tensor
    loss: TailLoss
    steps: int
    seed: int
    recipe: RecipePlan = field(default_factory=RecipePlan)


@runtime_checkable
class Evolving(Protocol):
    """A module of a tail, made by a lowering, that the loop calls around its steps and epochs.

    A later edit may put it inside another module, so that its weights come through PyTorch's recursive loading: where
    their shapes change, `torch.nn.Module.register_load_state_dict_pre_hook` is the place to follow them.

    Attributes:
        fresh_norms: Whether its norms have no statistics worth keeping, so that they train whatever the recipe says.
    """

    fresh_norms: bool

    def begin(self, training: Training) -> None:
        """Prepare for the first step."""

    def before_update(self, loss: float) -> None:
        """Read or change the gradients of a batch, whose mean loss is given."""

    def after_update(self) -> None:
        """Follow a step of the optimiser."""

    def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:
        """Change between epochs; return entries for the epoch's log.

        Args:
            epoch: Number of the finished epoch, from 1.
            room: Bytes that training may take beyond its peak so far; None for no limit.
        """

    def state(self) -> dict[str, Any]:
        """Return its state between epochs, without the weights: tensors, numbers, strings, lists and dictionaries."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; the weights of that time are loaded already."""

    def finish(self) -> tuple[str, ...]:
        """Become what is scored, written and exported; return notes for the trial's record."""

    def record(self, names: Mapping[nn.Module, str]) -> dict[str, Any]:
        """Return what a bundle records of the finished change, as JSON takes it; called on a tail with loaded weights.

        The change is in the bundle's weights, so training that continues from them does not make the edit again.

        Args:
            names: Modules' names in the whole model.
        """


def evolving(tail: nn.Module) -> list[Evolving]:
    """Return the modules of a tail that change while it trains."""
    return [module for module in tail.modules() if isinstance(module, Evolving)]


def begin_evolving(tail: nn.Module, training: Training) -> None:
    """Prepare every module of a tail that changes while it trains.

    A module that a later edit put inside another one receives its own inputs, and a loss of the whole tail.

    Args:
        tail: With all edits made; left in evaluation mode where such a module is inside another one.
        training: The tail's own inputs and loss.
    """
    for name, module in list(tail.named_modules()):
        if not isinstance(module, Evolving):
            continue
        inside = training
        if name:
            example, loss = _inputs(tail, name, training.example), _loss_around(tail, name, training.loss)
            inside = replace(training, example=example, loss=loss)
        module.begin(inside)


def _inputs(tail: nn.Module, name: str, example: torch.Tensor) -> torch.Tensor:
    """Return what the module in one place of a tail receives for the tail's inputs."""
    received: list[torch.Tensor] = []
    hook = tail.get_submodule(name).register_forward_pre_hook(lambda _module, inputs: received.append(inputs[0]))
    tail.eval()
    try:
        with torch.no_grad():
            tail(example)
    finally:
        hook.remove()
    return received[0]


def _loss_around(tail: nn.Module, name: str, loss: TailLoss) -> TailLoss:
    """Return a tail's loss as a function of the module in one place of it."""
    own = tail.get_submodule(name)

    def of(candidate: nn.Module) -> torch.Tensor:
        tail.set_submodule(name, candidate)
        try:
            return loss(tail)
        finally:
            tail.set_submodule(name, own)

    return of


def room(plan: TrialPlan, meter: PeakMeter) -> int | None:
    """Return the bytes that a plan's limit leaves above the peak so far; None where the plan has no limit."""
    limit = plan.runtime.memory_bytes
    return max(0, limit - meter.peak_bytes()) if limit else None


def first_step(tail: nn.Module, plan: TrialPlan) -> StepPlan:
    """Return the step that a tail starts with, as the eager loop runs it: nothing is freed before backward.

    Args:
        tail: With its edits made.
        plan: Its cut, recipe and samples.
    """
    shape = plan.model.blocks[plan.split].in_shape
    batch = min(plan.recipe.part_size, plan.train_samples)
    tail.eval()
    with FlopCounterMode(display=False) as counter:
        kept = saved_bytes(tail, torch.zeros(1, *shape))
    parameters = sum(parameter.numel() for parameter in tail.parameters())
    state = FLOAT_BYTES * STATE_COPIES[plan.recipe.optimiser] * parameters
    tensors = (
        Tensor("gradients and the optimiser's state", state, 0, 1, "state"),
        Tensor("kept for backward", batch * kept, 0, 1, "saved"),
        Tensor("batch", batch * FLOAT_BYTES * math.prod(shape), 0, 1, "input"),
    )
    return StepPlan(tensors, ("forward", "backward"), int(TRAIN_PASSES * batch * counter.get_total_flops()))
