"""Descriptions of models, plans and training steps as text."""

from collections.abc import Mapping
from typing import Any

from tuner.commands.describe import PlanDescription, StepDescription, TaskDescription
from tuner.planner.nntrainer.layers import format_shape
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
        *_memory_lines(step.memory),
    ]


def format_ini(description: Mapping[str, Any]) -> str:
    """Return a model file's description for people."""
    flops = description["flops"] / 1e6
    width = max(len(layer["name"]) for layer in description["layers"])
    lines = [
        f"{description['model']}: {description['parameters']:,} parameters, {flops:,.1f} MFLOPs per sample",
        f"a training step of {description['batch_size']} samples: {description['step_flops'] / 1e9:,.2f} GFLOPs",
        f"loss {description['loss']}, optimiser {description['optimiser']}",
        f"{'layer':<{width}}  {'type':<18}  {'output':<14}  {'MFLOPs':>8}  parameters",
    ]
    for layer in description["layers"]:
        frozen = "  frozen" if layer["parameters"] and not layer["trainable"] else ""
        lines.append(
            f"{layer['name']:<{width}}  {layer['type']:<18}  {format_shape(layer['shape']):<14}  "
            f"{layer['flops'] / 1e6:>8,.1f}  {layer['parameters']:>10,}{frozen}"
        )
    lines += _memory_lines(description["memory"])
    lines += [
        f"  planned peak with {parts['count']} micro-batches, same gradients: {format_bytes(parts['peak_bytes'])}"
        for parts in description["micro_batches"]
    ]
    return "\n".join(lines)


def _memory_lines(memory: Mapping[str, Any]) -> list[str]:
    """Return the memory of a planned step."""
    peak, lower_bound = format_bytes(memory["peak_bytes"]), format_bytes(memory["max_live_bytes"])
    planners = ", ".join(f"{name} {format_bytes(pool)}" for name, pool in memory["planners"].items())
    width = max(len(tensor["name"]) for tensor in memory["largest"])
    return [
        f"planned peak: {peak} ({memory['planner']}), at {memory['peak_step']['name']!r}",
        f"  lower bound for every planner: {lower_bound}; by planner: {planners}",
        "  largest there:",
        *(
            f"    {tensor['name']:<{width}}  {tensor['kind']:<10}  {format_bytes(tensor['bytes']):>9}"
            for tensor in memory["largest"]
        ),
    ]
