"""Two runs side by side as text."""

from collections.abc import Mapping
from typing import Any

from tuner.commands.runs.diff import RunDiff
from tuner.metrics import wilson
from tuner.results.scores.objectives import DOMAINS, SCORES, Objective, titled
from tuner.units import format_bytes, format_seconds

A, B = "A", "B"


def format_diff(found: RunDiff, objectives: Mapping[str, Objective]) -> str:
    """Return the comparison for people.

    Args:
        found: To print.
        objectives: The objectives of both runs, by name, for their units.
    """
    lines = [f"{A}: {found.runs[0]}", f"{B}: {found.runs[1]}", *(f"note: {note}" for note in found.notes)]
    asked = {name: pair for name, pair in found.asked.items() if name not in {"task_data", "space_content"}}
    lines += _table("asked", asked, objectives) if asked else ["asked: the same of both"]
    if "space_content" in found.asked and "space" not in found.asked:
        lines.append("  the search spaces have one name and differ in content")
    lines += _table("results", found.results, objectives)
    for side, letter in enumerate((A, B)):
        has_intervals = not any(objective.unit in SCORES for objective in objectives.values())
        lines.append(f"front of {letter}{' (95 % intervals)' if has_intervals else ''}:")
        for trial, values in found.front[side].items():
            names = [name for name, picked in found.picks[side].items() if picked == trial]
            named = f" ({', '.join(names)})" if names else ""
            texts = (_with_interval(found, side, objectives[name], value) for name, value in values.items())
            lines.append(f"  {trial}: {', '.join(texts)}{named}")
    if found.beaten is not None:
        sizes = [found.results["front_members"][side] for side in (0, 1)]
        lines.append(
            f"a trial of {B} beats {found.beaten[0]} of {sizes[0]} trials on the front of {A}; "
            f"a trial of {A} beats {found.beaten[1]} of {sizes[1]} on that of {B}"
        )
    return "\n".join(lines)


def _table(title: str, pairs: Mapping[str, tuple[Any, Any]], objectives: Mapping[str, Objective]) -> list[str]:
    rows = [(title, A, B)]
    for name, pair in pairs.items():
        if name.startswith("trials_") and not any(pair):
            continue
        one, other = (_text(name, value, objectives) for value in pair)
        rows.append((f"  {_title(name, objectives)}", one, other))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _title(name: str, objectives: Mapping[str, Objective]) -> str:
    """Return a row's name for people, with the runs' own score as what is called accuracy."""
    return titled(name, next((objective.unit for objective in objectives.values() if objective.unit in SCORES), "%"))


def _with_interval(found: RunDiff, side: int, objective: Objective, value: float) -> str:
    """Return a value with its unit; an accuracy with its 95 % interval."""
    count = found.results.get(f"scored_{DOMAINS.get(objective.name)}", (None, None))[side]
    if not count or objective.unit in SCORES:
        return objective.text(value)
    low, high = wilson(value, count)
    return f"{objective.text(value)} ({100 * low:.0f}–{100 * high:.0f})"


def _text(name: str, value: Any, objectives: Mapping[str, Objective]) -> str:
    if value is None:
        return "–"
    measure = name.removeprefix("best_").removeprefix("pick_").removeprefix("untouched_")
    if isinstance(value, float) and measure in objectives:
        return objectives[measure].text(value)
    if isinstance(value, float) and name.endswith("_seconds"):
        return format_seconds(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name == "forgetting":
        return f"{100 * value:.1f} points"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
