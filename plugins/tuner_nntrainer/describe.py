"""The memory of training a model file: ``tuner describe model.ini``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.planner.memory.placement import smallest
from tuner.planner.memory.summary import memory_lines, memory_summary, write_picture
from tuner.task.reader import Described
from tuner.units import format_bytes
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.network.layers import Input, format_shape
from tuner_nntrainer.network.network import Network
from tuner_nntrainer.network.training import batch_dependent, training_step

#: Numbers of parts for which the peak is reported.
MICRO_BATCHES = (2, 4, 8)


def describe_ini(path: Path, drawing: Path | None = None) -> Described:
    """Return a model file's layers in numbers, and its training step as planned.

    Args:
        path: Model file.
        drawing: File for an SVG picture of memory over the step.

    Raises:
        ModelError: The file cannot be read or planned, or the picture cannot be written.
    """
    model = read_ini(path)
    step = training_step(model)
    planner, placement = smallest(step.tensors)
    if drawing is not None:
        title = f"{path.name}, batch {model.batch_size}: {format_bytes(placement.pool_bytes)}, planner {planner}"
        write_picture(drawing, step.tensors, placement, step.steps, title)
    values = {
        "model": path.name,
        "batch_size": model.batch_size,
        "loss": model.loss,
        "optimiser": model.optimiser,
        "parameters": sum(node.parameters for node in model.nodes),
        "flops": sum(2 * node.traits.macs for node in model.nodes),
        "step_flops": step.flops,
        "layers": [
            {
                "name": node.name,
                "type": type(node.operation).__name__,
                "shape": list(node.traits.shape),
                "parameters": node.parameters,
                "flops": 2 * node.traits.macs,
                "trainable": node.trainable and not isinstance(node.operation, Input),
            }
            for node in model.nodes
        ],
        "memory": memory_summary(step.tensors, placement, planner, step.steps),
        "micro_batches": micro_batches(model),
    }
    return Described(values, _format(values))


def micro_batches(model: Network) -> list[dict[str, int]]:
    """Return the planned peak for every number of micro-batches that divides the batch.

    There are none where a batch norm trains: its statistics are those of the whole batch.
    """
    if batch_dependent(model) is not None:
        return []
    counts = [count for count in MICRO_BATCHES if model.batch_size % count == 0]
    return [
        {"count": count, "peak_bytes": smallest(training_step(model, count).tensors)[1].pool_bytes} for count in counts
    ]


def _format(description: Mapping[str, Any]) -> str:
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
    lines += memory_lines(description["memory"])
    lines += [
        f"  planned peak with {parts['count']} micro-batches, same gradients: {format_bytes(parts['peak_bytes'])}"
        for parts in description["micro_batches"]
    ]
    return "\n".join(lines)
