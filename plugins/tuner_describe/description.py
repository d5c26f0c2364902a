"""Describe a model as blocks and cuts, and what a plan would cost on this device."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tuner.commands.limits import NO_LIMITS, CommandLimits
from tuner.errors import TaskError
from tuner.plan.info import BlockInfo
from tuner.plan.text import describe
from tuner.plan.toml import from_toml
from tuner.plan.trial import TrialPlan
from tuner.planner.device import TRAIN_PASSES, Rates
from tuner.planner.memory.placement import smallest
from tuner.planner.memory.step import StepPlan
from tuner.planner.memory.summary import memory_summary, write_picture
from tuner.planner.price import price
from tuner.planner.tail_terms import forward_flops, worth_planning
from tuner.plugin.core import build_host
from tuner.reading import path_from, read_text
from tuner.search.estimate.rates import rates_of, with_sizes
from tuner.search.estimate.step_memory import expected_bytes
from tuner.search.processes.remote import open_remote
from tuner.task.file.load import READERS
from tuner.task.reader import Described
from tuner.units import format_bytes


@dataclass(frozen=True, slots=True)
class StepDescription:
    """A training step as planned; its memory without the weights is that of `memory_summary`."""

    batch_size: int
    micro_batches: int
    executor: Literal["planned", "eager"]
    flops: int
    seconds: float
    memory: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanDescription:
    """A plan, estimated on this device.

    Attributes:
        sentence: The plan in a sentence.
        supported: ``yes``, or the reason why the plan's backend cannot carry it out.
        flops: FLOPs of the whole trial on an empty store.
        step: The training step; None where it cannot be planned.
    """

    sentence: str
    supported: str
    train_seconds: float
    peak_bytes: int
    storage_bytes: int
    flops: int
    step: StepDescription | None


@dataclass(frozen=True, slots=True)
class TaskDescription:
    """A task's model in numbers, as `tuner.plan.info.ModelInfo` has it, and a plan for it, if one was asked for."""

    task: str
    model: str
    note: str
    outputs: int
    parameters: int
    flops: int
    blocks: tuple[BlockInfo, ...]
    traced_by: str = ""
    plan: PlanDescription | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON's types, blocks with their number; ``plan`` only where there is one."""
        content = asdict(self)
        content["blocks"] = tuple({"index": index, **block} for index, block in enumerate(content["blocks"]))
        if self.plan is None:
            del content["plan"]
        return content


def describe_file(name: str, picture: Path | None) -> Described | None:
    """Return what a file says of its own model, as its reader shows it; None where the model's blocks are shown.

    The reader draws the memory over a training step into `picture`, an SVG file.
    """
    suffix = Path(name).suffix
    reader = None if suffix in READERS or not suffix else build_host().task_files.get(suffix)
    return None if reader is None else reader.describe(Path(path_from(name)), picture)


def describe_task(
    task: str, plan_file: Path | None, picture: Path | None = None, limits: CommandLimits = NO_LIMITS
) -> TaskDescription:
    """Return a model's blocks in numbers; with a ``plan.toml``, its estimate here and its training step as planned.

    The memory over the training step is drawn into `picture`, an SVG file.
    """
    host = build_host(end=limits.end)
    plan, described = None, None
    if plan_file is not None:
        plan = from_toml(read_text(plan_file, TaskError, "--plan takes the plan.toml of a bundle"))
    name = next(iter(host.backends)) if plan is None else plan.runtime.backend
    with open_remote(
        host, task, [name], kill_at=limits.end, memory_bytes=limits.memory_bytes, many_jobs=plan is not None
    ) as sessions:
        session = sessions[name]
        info = session.task.info
        sizes = [size for size in (plan.size, plan.heads.small) if size] if plan is not None else []
        model = session.sized(sizes) if sizes else session.model
        rates = rates_of(session, name, measure=plan is not None)
        if plan is not None:
            plan = plan.carried_to(model, info)
            rates = with_sizes(rates, session, name, [plan], measure=True) if plan.size else rates
            reason = host.extensions(name).lacking(plan) or host.supports(plan)
            step = None if reason else session.plan_step(plan)
            described = _describe_plan(plan, rates, step, reason or "yes")
            if picture is not None:
                _draw(picture, plan, step)
    return TaskDescription(
        task=info.name,
        model=model.name,
        note=model.note,
        outputs=model.outputs,
        parameters=sum(block.parameters for block in model.blocks),
        flops=sum(block.flops for block in model.blocks),
        blocks=model.blocks,
        traced_by=model.traced_by,
        plan=described,
    )


def _describe_plan(plan: TrialPlan, rates: Rates, step: StepPlan | None, supported: str) -> PlanDescription:
    estimate = price(plan, rates).estimate()
    peak_bytes = estimate.peak_bytes
    if step is not None and worth_planning(plan):
        peak_bytes = expected_bytes(plan, step, rates)  # the planned executor runs it
    return PlanDescription(
        sentence=describe(plan),
        supported=supported,
        train_seconds=estimate.train_seconds,
        peak_bytes=peak_bytes,
        storage_bytes=estimate.storage_bytes,
        flops=training_flops(plan),
        step=None if step is None else _describe_step(plan, rates, step),
    )


def _describe_step(plan: TrialPlan, rates: Rates, step: StepPlan) -> StepDescription:
    planner, placement = smallest(step.tensors)
    steps = math.ceil(plan.train_samples / plan.recipe.batch_size)
    return StepDescription(
        batch_size=plan.recipe.batch_size,
        micro_batches=plan.recipe.micro_batches,
        executor="planned" if worth_planning(plan) else "eager",
        flops=step.flops,
        seconds=price(plan, rates).loop_seconds / (plan.recipe.epochs * steps),
        memory=memory_summary(step.tensors, placement, planner, step.steps),
    )


def _draw(path: Path, plan: TrialPlan, step: StepPlan | None) -> None:
    if step is None:
        raise TaskError(
            "--picture shows a planned step, but the step of this plan cannot be traced: leave --picture out"
        )
    planner, placement = smallest(step.tensors)
    title = f"{describe(plan)}: {format_bytes(placement.pool_bytes)}, planner {planner}"
    write_picture(path, step.tensors, placement, step.steps, title)


def training_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of the whole trial on an empty store; backward counts two forward passes."""
    tail = sum(block.flops for block in plan.model.blocks[plan.split :])
    once = plan.pool_samples if plan.cached or plan.data.edit is not None else 0
    again = 0 if plan.cached else plan.recipe.epochs * plan.train_samples
    prefix = forward_flops(plan) - tail
    return int((once + again) * prefix + plan.train_samples * plan.recipe.epochs * TRAIN_PASSES * tail)
