"""What a model file would need to train: ``tuner describe model.ini``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import ModelError
from tuner.planner.ini import read_ini
from tuner.planner.layers import Input, said_shape
from tuner.planner.lifetimes import Tensor
from tuner.planner.network import Network
from tuner.planner.picture import picture
from tuner.planner.placement import PLANNERS, Placement, largest_at, live_bytes, max_live, peak_step, smallest
from tuner.planner.training import training_step, whole_batch
from tuner.units import said_bytes

LARGEST = 10
MICRO_BATCHES = (2, 4, 8)


def describe_ini(path: Path, drawing: Path | None = None) -> dict[str, Any]:
    """Return a model file's layers in numbers, and its training step as planned.

    Args:
        path: The model file.
        drawing: Where to write an SVG picture of memory over the step.

    Raises:
        ModelError: The file cannot be read or planned, or the picture not written.
    """
    model = read_ini(path)
    step = training_step(model)
    planner, placement = smallest(step.tensors)
    if drawing is not None:
        title = f"{path.name}, batch {model.batch_size}: {said_bytes(placement.pool_bytes)}, planner {planner}"
        draw(drawing, step.tensors, placement, step.steps, title)
    return {
        "model": path.name,
        "batch_size": model.batch_size,
        "loss": model.loss,
        "optimiser": model.optimiser,
        "parameters": sum(node.parameters for node in model.nodes),
        "flops": sum(2 * node.traits.macs for node in model.nodes),
        "step_flops": step.flops,
        "layers": [
            {"name": node.name, "type": type(node.operation).__name__, "shape": list(node.traits.shape),
             "parameters": node.parameters, "flops": 2 * node.traits.macs,
             "trainable": node.trainable and not isinstance(node.operation, Input)}
            for node in model.nodes
        ],
        "memory": memory(step.tensors, placement, planner, step.steps),
        "micro_batches": micro_batches(model),
    }  # fmt: skip


def micro_batches(model: Network) -> list[dict[str, int]]:
    """Return the planned peak where the batch is cut into 2, 4 and 8 parts, as far as they divide it.

    There are none where a batch norm trains: its statistics are those of the whole batch.
    """
    if whole_batch(model) is not None:
        return []
    counts = [count for count in MICRO_BATCHES if model.batch_size % count == 0]
    return [
        {"count": count, "peak_bytes": smallest(training_step(model, count).tensors)[1].pool_bytes} for count in counts
    ]


def memory(tensors: Sequence[Tensor], placement: Placement, planner: str, steps: Sequence[str]) -> dict[str, Any]:
    """Return a planned step's bytes: the pool, the lower bound, where the peak is and what is alive there.

    Args:
        tensors: Of the step.
        placement: Of all of them.
        planner: That made it.
        steps: What happens in each execution step.
    """
    peak = peak_step(tensors)
    return {
        "planner": planner,
        "peak_bytes": placement.pool_bytes,
        "max_live_bytes": max_live(tensors),
        "planners": {name: one(tensors).pool_bytes for name, one in PLANNERS.items()},
        "peak_step": {"index": peak, "name": steps[peak]},
        "largest": [
            {"name": one.name, "kind": one.kind, "bytes": one.nbytes} for one in largest_at(tensors, peak, LARGEST)
        ],
        "steps": [{"name": name, "live_bytes": live} for name, live in zip(steps, live_bytes(tensors), strict=True)],
    }


def draw(path: Path, tensors: Sequence[Tensor], placement: Placement, steps: Sequence[str], title: str) -> None:
    """Write a picture of memory over the step.

    Raises:
        ModelError: The file cannot be written.
    """
    try:
        path.write_text(picture(tensors, placement, steps, title), encoding="utf-8")
    except OSError as error:
        raise ModelError(f"--picture {path} cannot be written: {error}") from None


def said_ini(found: Mapping[str, Any]) -> str:
    """Return a model file's description for people."""
    width = max(len(one["name"]) for one in found["layers"])
    lines = [
        f"{found['model']}: {found['parameters']:,} parameters, {found['flops'] / 1e6:,.1f} MFLOPs a sample",
        f"a training step of {found['batch_size']} samples: {found['step_flops'] / 1e9:,.2f} GFLOPs",
        f"loss {found['loss']}, optimiser {found['optimiser']}",
        f"{'layer':<{width}}  {'type':<18}  {'output':<14}  {'MFLOPs':>8}  parameters",
    ]
    for one in found["layers"]:
        frozen = "  frozen" if one["parameters"] and not one["trainable"] else ""
        lines.append(
            f"{one['name']:<{width}}  {one['type']:<18}  {said_shape(one['shape']):<14}  {one['flops'] / 1e6:>8,.1f}  "
            f"{one['parameters']:>10,}{frozen}"
        )
    lines += said_memory(found["memory"])
    lines += [
        f"  in {one['count']} micro-batches, for the same gradients: {said_bytes(one['peak_bytes'])}"
        for one in found["micro_batches"]
    ]
    return "\n".join(lines)


def said_memory(found: Mapping[str, Any]) -> list[str]:
    """Return a planned step's bytes for people, in lines."""
    others = ", ".join(f"{name} {said_bytes(value)}" for name, value in found["planners"].items())
    width = max(len(one["name"]) for one in found["largest"])
    return [
        f"planned peak: {said_bytes(found['peak_bytes'])} ({found['planner']}), at {found['peak_step']['name']!r}",
        f"  no plan can need less than {said_bytes(found['max_live_bytes'])}; by planner: {others}",
        "  largest there:",
        *(f"    {one['name']:<{width}}  {one['kind']:<10}  {said_bytes(one['bytes']):>9}" for one in found["largest"]),
    ]
