"""Lines in a file of SVG: what a benchmark draws needs no library."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP = 720, 400, 60, 20
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#8d6a9f", "#edae49")


def write_lines(path: Path, lines: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> None:
    """Draw steps: each value holds until the next.

    Args:
        path: The file.
        lines: Points by name, ascending in x.
        x: Name of the horizontal axis.
        y: Name of the vertical axis.
    """
    right = max((one[0] for points in lines.values() for one in points), default=1.0) or 1.0
    top = max((one[1] for points in lines.values() for one in points), default=1.0) or 1.0
    wide, high = WIDTH - LEFT - 20, HEIGHT - TOP - 50

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return LEFT + wide * point[0] / right, TOP + high * (1 - point[1] / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<path d="M{LEFT},{TOP}V{TOP + high}H{LEFT + wide}" fill="none" stroke="#333"/>',
        f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x)} (to {right:,.0f})</text>',
        (
            f'<text x="14" y="{TOP + high / 2}" transform="rotate(-90 14 {TOP + high / 2})" text-anchor="middle">'
            f"{escape(y)} (to {top:.3f})</text>"
        ),
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        drawn = ""
        for point in points:
            across, down = place(point)
            drawn += f"H{across:.1f}V{down:.1f}" if drawn else f"M{across:.1f},{down:.1f}"
        parts.append(f'<path d="{drawn}H{LEFT + wide}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 12}" y="{TOP + 16 * (number + 1)}" fill="{colour}">{escape(name)}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")
