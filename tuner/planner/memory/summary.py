"""The memory of a planned training step in numbers and as a picture."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tuner.errors import ModelError
from tuner.planner.memory.placement import PLANNERS, Placement, Tensor, largest_at, live_bytes, max_live, peak_step
from tuner.units import format_bytes

#: Tensors listed of those alive at the peak.
LARGEST = 10
#: Size of a picture, and its margins.
WIDTH, HEIGHT = 960, 480
LEFT, RIGHT, TOP, BOTTOM = 80, 16, 48, 72
LEGEND = 79
#: Colours by kind of tensor, distinguishable for colour-blind people (Okabe and Ito).
COLOURS = {
    "weight": "#0072b2",
    "state": "#56b4e9",
    "input": "#999999",
    "label": "#bbbbbb",
    "activation": "#009e73",
    "output": "#66c2a5",
    "saved": "#7fbf3f",
    "gradient": "#d55e00",
    "derivative": "#e69f00",
    "scratch": "#cc79a7",
}
OTHER = "#f0e442"


def memory_summary(
    tensors: Sequence[Tensor], placement: Placement, planner: str, steps: Sequence[str]
) -> dict[str, Any]:
    """Return a planned step's bytes: the pool, its lower bound, the peak, and the largest tensors alive there."""
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
    """Write a picture of memory over the step; see `picture`.

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


def picture(tensors: Sequence[Tensor], placement: Placement, steps: Sequence[str], title: str) -> str:
    """Draw tensors at their places in the pool over time as SVG, and the bytes alive in every step as a line."""
    count, pool = max(1, len(steps)), max(1, placement.pool_bytes)
    across, down = (WIDTH - LEFT - RIGHT) / count, (HEIGHT - TOP - BOTTOM) / pool
    floor = HEIGHT - BOTTOM
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            'font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for tensor in tensors:
        low = floor - placement.offsets[tensor.name] * down
        what = f"{tensor.name} ({tensor.kind}), {format_bytes(tensor.nbytes)}"
        when = f"{_name(steps, tensor.first)} to {_name(steps, tensor.last)}"
        parts.append(
            f'<rect x="{LEFT + tensor.first * across:.2f}" y="{low - tensor.nbytes * down:.2f}" '
            f'width="{(tensor.last - tensor.first + 1) * across:.2f}" height="{tensor.nbytes * down:.2f}" '
            f'fill="{COLOURS.get(tensor.kind, OTHER)}" stroke="white" stroke-width="0.3">'
            f"<title>{escape(f'{what}: {when}')}</title></rect>"
        )
    live = live_bytes(tensors)
    points = [
        f"{LEFT + (step + edge) * across:.2f},{floor - value * down:.2f}"
        for step, value in enumerate(live)
        for edge in (0, 1)
    ]
    parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="black" stroke-width="1.5"/>')
    parts += _axes(live, pool, floor, across, down)
    drawn = {tensor.kind if tensor.kind in COLOURS else "" for tensor in tensors}
    parts += _legend([kind for kind in (*COLOURS, "") if kind in drawn])
    return "\n".join([*parts, "</svg>", ""])


def _axes(live: Sequence[int], pool: int, floor: int, across: float, down: float) -> list[str]:
    peak = live.index(max(live)) if live else 0
    at = LEFT + (peak + 0.5) * across
    scale = [
        f'<text x="{LEFT - 6}" y="{floor - pool * quarter / 4 * down + 4:.2f}" text-anchor="end">'
        f"{format_bytes(pool * quarter / 4)}</text>"
        for quarter in range(5)
    ]
    return [
        f'<path d="M{LEFT},{TOP} V{floor} H{WIDTH - RIGHT}" fill="none" stroke="black"/>',
        f'<line x1="{at:.2f}" y1="{TOP - 6}" x2="{at:.2f}" y2="{floor}" stroke="black" stroke-dasharray="3 3"/>',
        f'<text x="{at:.2f}" y="{TOP - 10}" text-anchor="middle">peak</text>',
        *scale,
        f'<text x="{LEFT}" y="{floor + 18}">execution steps 0 to {max(0, len(live) - 1)}; line: bytes alive</text>',
    ]


def _legend(kinds: Sequence[str]) -> list[str]:
    parts = []
    for number, kind in enumerate(kinds):
        x = LEFT + number * LEGEND
        parts.append(
            f'<rect x="{x}" y="{HEIGHT - 30}" width="12" height="12" fill="{COLOURS.get(kind, OTHER)}"/>'
            f'<text x="{x + 16}" y="{HEIGHT - 20}">{kind or "other"}</text>'
        )
    return parts


def _name(steps: Sequence[str], step: int) -> str:
    return steps[step] if step < len(steps) else f"step {step}"
