"""The memory of training a model file: ``tuner describe model.ini``."""

from pathlib import Path
from typing import Any

from tuner.planner.memory.placement import smallest
from tuner.planner.memory.summary import memory_summary, write_picture
from tuner.planner.nntrainer.ini import read_ini
from tuner.planner.nntrainer.layers import Input
from tuner.planner.nntrainer.network import Network
from tuner.planner.nntrainer.training import batch_dependent, training_step
from tuner.units import format_bytes

#: Numbers of parts for which the peak is reported.
MICRO_BATCHES = (2, 4, 8)


def describe_ini(path: Path, drawing: Path | None = None) -> dict[str, Any]:
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
    return {
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
