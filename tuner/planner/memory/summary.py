"""The memory of a planned training step in numbers and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import ModelError
from tuner.planner.memory.lifetimes import Tensor
from tuner.planner.memory.picture import picture
from tuner.planner.memory.placement import PLANNERS, Placement, largest_at, live_bytes, max_live, peak_step
from tuner.units import format_bytes

#: Tensors listed of those alive at the peak.
LARGEST = 10


def memory_summary(
    tensors: Sequence[Tensor], placement: Placement, planner: str, steps: Sequence[str]
) -> dict[str, Any]:
    """Return a planned step's bytes: the pool, its lower bound, the peak, and the tensors alive there.

    Args:
        tensors: Tensors of the step.
        placement: Places of all of them.
        planner: Name of the planner that placed them.
        steps: Names of the execution steps.
    """
    peak = peak_step(tensors)
    return {
        "planner": planner,
        "peak_bytes": placement.pool_bytes,
        "max_live_bytes": max_live(tensors),
        "planners": {name: place(tensors).pool_bytes for name, place in PLANNERS.items()},
        "peak_step": {"index": peak, "name": steps[peak]},
        "largest": [
            {"name": tensor.name, "kind": tensor.kind, "bytes": tensor.nbytes}
            for tensor in largest_at(tensors, peak, LARGEST)
        ],
        "steps": [{"name": name, "live_bytes": live} for name, live in zip(steps, live_bytes(tensors), strict=True)],
    }


def write_picture(
    path: Path, tensors: Sequence[Tensor], placement: Placement, steps: Sequence[str], title: str
) -> None:
    """Write a picture of memory over the step; arguments as for `tuner.planner.memory.picture.picture`.

    Raises:
        ModelError: The file cannot be written.
    """
    try:
        path.write_text(picture(tensors, placement, steps, title), encoding="utf-8")
    except OSError as error:
        raise ModelError(f"--picture {path} cannot be written: {error}") from None


def memory_lines(memory: Mapping[str, Any]) -> list[str]:
    """Return the memory of a planned step for people, of what `memory_summary` returns."""
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
