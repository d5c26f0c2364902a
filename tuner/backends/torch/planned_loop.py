"""Training by the planned executor in a trial: the tail's step is traced once and run in the planned order."""

import gc
import time

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from tuner.backends.torch.planned import Run, bound, held_by, program
from tuner.backends.torch.prefix import channels_last, spatial
from tuner.backends.torch.scratch import Library, measured
from tuner.backends.torch.step import Loss, Part, Step, StepError, trace
from tuner.backends.torch.training import Loop, Source, Steps
from tuner.plan import TrialPlan
from tuner.planner import step as planner
from tuner.planner.cost import PLANNED_BYTES, kept_bytes, worth_planning
from tuner.task import Task


def engine(task: Task, plan: TrialPlan, tail: nn.Module, rows: Source, seed: int) -> Steps:
    """Return what runs a plan's steps: the planned executor where it pays and the tail can be traced, else `Loop`.

    The notes say which, and why.
    """
    if worth_planning(plan):
        try:
            return PlannedLoop(task, plan, tail, rows, seed)
        except StepError as error:
            reason = str(error)
    elif plan.shape:
        reason = "the tail changes while it trains"
    else:
        kept = f"{kept_bytes(plan) / 1e6:,.1f} MB kept for the backward pass"
        reason = f"{kept}, and planning pays from {PLANNED_BYTES / 1e6:,.0f} MB"
    loop = Loop(task, plan, tail, rows, seed)
    loop.notes = (f"run by PyTorch's eager loop: {reason}",)
    return loop


def steps_of(tail: nn.Module, plan: TrialPlan, loss: Loss) -> tuple[Step, ...]:
    """Trace what one batch of a plan needs: one step, or that of a micro-batch and that of the last one.

    Batches are as large as the plan has samples, at most. Where the last batch of an epoch is a smaller one, norms that
    train leave out samples of weight zero; else they are PyTorch's own.

    Args:
        tail: Channels last.
        plan: Its recipe, and how many samples there are.
        loss: As of `trace`.

    Raises:
        StepError: The tail cannot be traced.
    """
    recipe, samples = plan.recipe, plan.train_samples
    whole = recipe.part_size >= min(recipe.batch_size, samples)
    parts: tuple[Part, ...] = ("whole",) if whole else ("adding", "last")
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


def planned_step(tail: nn.Module, plan: TrialPlan, loss: Loss, library: Library = measured) -> planner.StepPlan:
    """Return a plan's training step in numbers; nothing trains.

    Args:
        tail: What trains; put in the layout that it trains in.
        plan: As of `steps_of`.
        loss: As of `trace`.
        library: What the library takes beside tensors; by default as measured here.

    Raises:
        StepError: The tail cannot be traced.
    """
    steps = steps_of(channels_last(tail), plan, loss)
    size = steps[0].inputs[0].shape[0]
    parts = -(-min(plan.recipe.batch_size, plan.train_samples) // size)
    runs = []
    for step in steps:
        made = program(step, library)
        times = 1 if step is steps[-1] else parts - 1
        runs.append(planner.Run(made.tensors, made.steps, flops_of(step), times))
    return planner.in_a_row(runs)


def flops_of(step: Step) -> int:
    """Return the FLOPs of a traced step's convolutions and matrix products, as PyTorch's own counter has them."""
    total = 0
    for node in step.graph.graph.nodes:
        formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
        if formula is not None:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
            total += formula(*args, **kwargs, out_val=node.meta["val"])
    return total


class PlannedLoop(Loop):
    """`Loop` with its step run by the planned executor, which overwrites the tail's weights where they lie.

    Batches of fewer samples are filled up with samples of weight zero.

    Raises:
        StepError: The tail cannot be traced.
    """

    def __init__(self, task: Task, plan: TrialPlan, tail: nn.Module, rows: Source, seed: int) -> None:
        super().__init__(task, plan, tail, rows, seed)
        started = time.perf_counter()
        steps = steps_of(tail, plan, task.loss)
        programs = [program(step) for step in steps]
        held = held_by(steps[-1], tail)
        self._ports = [[port for name in made.batch for port in step.inputs if port.name == name]
                       for made, step in zip(programs, steps, strict=True)]  # fmt: skip
        self._sums = [value for name, value in held.items() if name.startswith("sum.") and len(steps) > 1]
        del steps
        gc.collect()  # graphs refer to themselves in circles, and would stay in memory beside the steps
        self._runs: list[Run] = [bound(made, held) for made in programs]
        self._size = self._ports[0][0].shape[0]
        took = time.perf_counter() - started
        self.notes = (f"run by the planned executor: the step was traced and planned in {took:.1f} s",)

    def step(self, batch: npt.NDArray[np.int64]) -> float:
        """Train on one batch of row numbers; return its mean loss."""
        self._adjust()
        self._step += 1
        for total in self._sums:
            total.zero_()
        value = 0.0
        for begin in range(0, len(batch), self._size):
            part = batch[begin : begin + self._size]
            last = begin + self._size >= len(batch)
            value += float(self._runs[-1 if last else 0](*self._given(-1 if last else 0, part, len(batch))))
        return value

    def _given(self, which: int, part: npt.NDArray[np.int64], count: int) -> list[torch.Tensor]:
        """Return what a step is given, in its order, for some of a batch's `count` rows."""
        values = {
            "sample_weight": (torch.arange(self._size) < len(part)).float(),
            "share": torch.tensor(len(part) / count),
            "learning_rate": torch.tensor(float(self._optimiser.param_groups[0]["lr"])),
            "step_count": torch.tensor(float(self._step)),
        }
        given = []
        for port in self._ports[which]:
            if port.kind == "input":
                given.append(spatial(_filled(self._rows.read(part), self._size)))
            elif port.kind == "label":
                labels = torch.from_numpy(np.ascontiguousarray(self._rows.labels[part]))
                given.append(_filled(labels, self._size))
            elif port.kind == "noise":
                given.append(torch.rand(port.shape))
            else:
                given.append(values[port.kind])
        return given


def _filled(value: torch.Tensor, size: int) -> torch.Tensor:
    """Return a batch of `size` samples: those given, then the first one again and again."""
    missing = size - len(value)
    return torch.cat([value, value[:1].expand(missing, *value.shape[1:])]) if missing else value
