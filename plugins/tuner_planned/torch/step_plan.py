"""A plan's training step traced, and counted to the byte."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from tuner.backends.torch.model.graph.layout import channels_last
from tuner.backends.torch.step.losses import ExtendedLoss
from tuner.backends.torch.step.trace import BatchPart, trace
from tuner.backends.torch.step.traced import Step
from tuner.backends.torch.task_loss import StepLoss
from tuner.plan.trial import TrialPlan
from tuner.planner.memory.placement import Tensor
from tuner.planner.memory.step import LASTING, StepPlan
from tuner_planned.torch.library_memory import Library, measured
from tuner_planned.torch.program import program


@dataclass(frozen=True, slots=True)
class StepRun:
    """A program that a step runs, once or several times in a row.

    Attributes:
        tensors: Tensors in memory, weights included.
        steps: Names of the execution steps.
        flops: FLOPs of one run.
        times: Number of runs.
    """

    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]
    flops: int
    times: int = 1


def steps_of(tail: nn.Module, plan: TrialPlan, loss: StepLoss | ExtendedLoss) -> tuple[Step, ...]:
    """Trace what one batch of a plan needs: one step, or that of a micro-batch and that of the last one.

    Batches are as large as the plan has samples, at most. Where the last batch of an epoch is a smaller one, norms that
    train leave out samples of weight zero; else they are PyTorch's own. The tail is laid out channels last.
    """
    recipe, samples = plan.recipe, plan.train_samples
    whole = recipe.part_size >= min(recipe.batch_size, samples)
    parts: tuple[BatchPart, ...] = ("whole",) if whole else ("adding", "last")
    size = min(recipe.part_size, samples)
    return tuple(
        trace(
            tail,
            recipe,
            loss=loss,
            input_shape=plan.model.blocks[plan.split].in_shape,
            outputs=plan.model.outputs,
            batch_size=size,
            padded=samples % size != 0,
            part=part,
        )
        for part in parts
    )


def planned_step(
    tail: nn.Module, plan: TrialPlan, loss: StepLoss | ExtendedLoss, library: Library = measured
) -> StepPlan:
    """Return a plan's training step in numbers; nothing trains, but the tail gets the layout that it trains in.

    Raises:
        StepError: The tail cannot be traced.
    """
    steps = steps_of(channels_last(tail), plan, loss)
    size = steps[0].inputs[0].shape[0]
    parts = -(-min(plan.recipe.batch_size, plan.train_samples) // size)
    runs = []
    for step in steps:
        code = program(step, library)
        times = 1 if step is steps[-1] else parts - 1
        runs.append(StepRun(code.tensors, code.steps, flops_of(step), times))
    return in_sequence(runs)


def flops_of(step: Step) -> int:
    """Return the FLOPs of a traced step's convolutions and matrix products; a multiply-accumulate counts two."""
    total = 0
    for node in step.graph.graph.nodes:
        operator = getattr(node.target, "overloadpacket", None)
        formula = flop_registry.get(operator)
        if formula is not None:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
            backward = operator is torch.ops.aten.convolution_backward
            total += _backward_flops(*args) if backward else formula(*args, **kwargs, out_val=node.meta["val"])
    return total


def _backward_flops(*arguments: Any) -> int:
    """Return the FLOPs of a convolution's gradients, each as many as its forward pass.

    PyTorch's own formula counts the gradient of grouped weights as that of a dense convolution.
    """
    grad, value, weight, transposed, mask = (arguments[place] for place in (0, 1, 2, 7, 10))
    positions = math.prod((value if transposed else grad).shape[2:])
    flops: int = 2 * sum(mask[:2]) * grad.shape[0] * positions * weight.numel()
    return flops


def in_sequence(runs: Sequence[StepRun]) -> StepPlan:
    """Join programs that run one after the other on the same weights; one that runs several times is listed once.

    The last one has every lasting tensor that any of them has.
    """
    steps = tuple(name for run in runs for name in run.steps)
    end = len(steps) - 1
    lasting = [replace(tensor, first=0, last=end) for tensor in runs[-1].tensors if tensor.kind in LASTING]
    passing: list[Tensor] = []
    begin = 0
    for number, run in enumerate(runs, start=1):
        mark = "" if run is runs[-1] else f" ({number})"
        passing += [
            replace(tensor, name=f"{tensor.name}{mark}", first=tensor.first + begin, last=tensor.last + begin)
            for tensor in run.tensors
            if tensor.kind not in LASTING
        ]
        begin += len(run.steps)
    tensors = tuple(tensor for tensor in (*lasting, *passing) if tensor.kind != "weight")
    return StepPlan(tensors, steps, sum(run.times * run.flops for run in runs))
