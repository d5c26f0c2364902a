"""Descriptions of models, plans and training steps as text."""

from tuner.commands.tasks.describe import PlanDescription, StepDescription, TaskDescription
from tuner.planner.memory.summary import memory_lines
from tuner.units import format_bytes, format_seconds


def format_task(description: TaskDescription) -> str:
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


def _plan_lines(plan: PlanDescription) -> list[str]:
    return [
        plan.sentence,
        f"  supported: {plan.supported}",
        (
            f"  about {format_seconds(plan.train_seconds)} of training, {format_bytes(plan.peak_bytes)} peak memory, "
            f"{format_bytes(plan.storage_bytes)} stored, {plan.flops / 1e9:,.1f} GFLOPs"
        ),
        *_step_lines(plan.step),
    ]


def _step_lines(step: StepDescription | None) -> list[str]:
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
