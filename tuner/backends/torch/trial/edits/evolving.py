"""Tails that change while they train: how the training loop calls their modules."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.backends.lowering import Evolving, LoweringError, Training
from tuner.backends.torch.model.graph.blocks import saved_bytes
from tuner.backends.torch.step.traced import EAGERLY, StepError
from tuner.errors import call_extension
from tuner.machine.process_memory import PeakMeter
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FLOAT_BYTES, TRAIN_PASSES, state_copies
from tuner.planner.memory.placement import Tensor
from tuner.planner.memory.step import StepPlan

#: Takes a module, returns a mean loss: a scalar with its graph.
TailLoss = Callable[[nn.Module], torch.Tensor]


def evolving(tail: nn.Module) -> list[Evolving]:
    """Return the modules of a tail that change while it trains."""
    return [module for module in tail.modules() if isinstance(module, Evolving)]


def require_traceable(tail: nn.Module) -> None:
    """Refuse to trace a tail that changes while it trains."""
    if evolving(tail):
        raise StepError(f"a tail that changes while it trains cannot be traced once for all: {EAGERLY}")


def call(module: Evolving, method: str, *arguments: Any) -> Any:
    """Call a method of a module that changes while it trains."""
    function = getattr(module, method)
    if not module.kind:
        return function(*arguments)
    return call_extension(LoweringError, module.kind, function, *arguments, did=f"{method} raised ")


def begin_evolving(tail: nn.Module, training: Training) -> None:
    """Prepare every module of a tail that changes while it trains.

    A module that a later edit put inside another one receives its own inputs, and a loss of the whole tail; the tail
    is then left in evaluation mode.
    """
    for name, module in list(tail.named_modules()):
        if not isinstance(module, Evolving):
            continue
        inside = training
        if name:
            example, loss = _inputs(tail, name, training.example), _loss_around(tail, name, training.loss)
            inside = replace(training, example=example, loss=loss)
        call(module, "begin", inside)


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
    """Return the step that an edited tail starts with, as the eager loop runs it: nothing is freed before backward."""
    shape = plan.model.blocks[plan.split].in_shape
    batch = min(plan.recipe.part_size, plan.train_samples)
    tail.eval()
    with FlopCounterMode(display=False) as counter:
        kept = saved_bytes(tail, torch.zeros(1, *shape))
    parameters = sum(parameter.numel() for parameter in tail.parameters() if parameter.requires_grad)
    state = FLOAT_BYTES * state_copies(plan.recipe.optimiser) * parameters
    tensors = (
        Tensor("gradients and the optimiser's state", state, 0, 1, "state"),
        Tensor("kept for backward", batch * kept, 0, 1, "saved"),
        Tensor("batch", batch * FLOAT_BYTES * math.prod(shape), 0, 1, "input"),
    )
    return StepPlan(tensors, ("forward", "backward"), int(TRAIN_PASSES * batch * counter.get_total_flops()))
