"""The command ``tuner describe``, and its text."""

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.options import Fetch, Json, Memory, Time, document, print_line
from tuner.distribution import fetching
from tuner.errors import UsageError
from tuner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tuner_describe.description import PlanDescription, StepDescription, TaskDescription


def describe(
    task: str,
    /,
    *,
    plan: Path | None = None,
    picture: Path | None = None,
    time: Time = None,
    memory: Memory = None,
    fetch: Fetch = False,
    json_output: Json = False,
) -> None:
    """Show a model's blocks with FLOPs and bytes; with a plan, the plan's cost and the memory of its training step.

    For an NNTrainer model file (.ini), show its layers and the planned memory of a training step.

    Parameters
    ----------
    task
        A task.toml, a file.py:function, the name of a built-in task, or a model.ini.
    plan
        A plan.toml, such as a bundle's, whose cost is estimated; only for a task.
    picture
        SVG file to write, with the memory over a training step: of a model.ini, or of a task with --plan.
    """
    from tuner.cli.fence import ended_by, guarded
    from tuner.commands.limits import CommandLimits
    from tuner_describe.description import describe_file, describe_task

    limits = CommandLimits.read(time, memory)
    with fetching(asked=fetch), guarded("describing the model", limits):
        described = describe_file(task, picture)
    if described is not None:
        if plan is not None:
            raise UsageError(f"--plan is for a task, but {task} is a model file: leave it out")
        print_line(document("model-file-1", described.values) if json_output else described.text)
        return
    if picture is not None and plan is None:
        raise UsageError(f"--picture of the task {task!r} shows a plan's step, but there is no --plan: give one")
    with fetching(asked=fetch), ended_by(limits.end):
        description = describe_task(task, plan, picture, limits.within_free())
    print_line(document("describe-1", description.to_dict()) if json_output else format_task(description))


def format_task(description: "TaskDescription") -> str:
    """Return a model's description for people."""
    flops = description.flops / 1e6
    lines = [f"{description.model}: {description.parameters:,} parameters, {flops:,.1f} MFLOPs per sample"]
    if description.note:
        lines.append(description.note)
    if description.traced_by:
        lines.append(f"{len(description.blocks)} blocks, traced by {description.traced_by}")
    width = max(len(block.name) for block in description.blocks)
    lines.append(f"block  {'name':<{width}}  {'input':<16}  MFLOPs  parameters  saved per sample")
    for index, block in enumerate(description.blocks):
        shape = "×".join(map(str, block.in_shape))
        lines.append(
            f"{index:>5}  {block.name:<{width}}  {shape:<16}  {block.flops / 1e6:>6.1f}  "
            f"{block.parameters:>10,}  {format_bytes(block.saved_bytes)}"
        )
    if description.plan is not None:
        lines += _plan_lines(description.plan)
    return "\n".join(lines)


def _plan_lines(plan: "PlanDescription") -> list[str]:
    return [
        plan.sentence,
        f"  supported: {plan.supported}",
        (
            f"  about {format_seconds(plan.train_seconds)} of training, {format_bytes(plan.peak_bytes)} peak memory, "
            f"{format_bytes(plan.storage_bytes)} stored, {plan.flops / 1e9:,.1f} GFLOPs"
        ),
        *_step_lines(plan.step),
    ]


def _step_lines(step: "StepDescription | None") -> list[str]:
    from tuner.planner.memory.summary import memory_lines

    if step is None:
        return ["the training step cannot be planned: PyTorch's eager loop, or another engine, runs it"]
    parts = f" in {step.micro_batches} micro-batches" if step.micro_batches > 1 else ""
    return [
        (
            f"a training step of {step.batch_size} samples{parts}: {step.flops / 1e9:,.2f} GFLOPs, about "
            f"{format_seconds(step.seconds)}; in a trial it runs on the {step.executor} executor"
        ),
        "memory of the step in addition to the weights, as the planned executor runs it:",
        *memory_lines(step.memory),
    ]
