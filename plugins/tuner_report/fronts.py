"""Fronts: what is gained, against what is forgotten and what it costs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES, SCORES, Objective
from tuner.results.scores.pareto import front
from tuner.targets.base import ACCURACY
from tuner_report.charts.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    VIOLET,
    LeftOut,
    Picture,
    drawing,
    to_svg,
)
from tuner_report.charts.points import Point, baseline_point, point, references, scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOCAL, GLOBAL, SECONDS, BYTES = OBJECTIVES
MARKS = {"head only": ("s", ORANGE), "everything": ("D", VIOLET)}
#: What a reference trains, in words.
PARTS = {"head only": "the head only", "everything": "the whole model"}
PERCENT = 100
#: Costs that are shown on a logarithmic scale from this ratio on.
MANY_TIMES = 8


#: Units of which 1 is all.
SHARES = ("%", *SCORES)


def label(objective: Objective) -> str:
    """Return the name of a value with its unit, for an axis."""
    shown = {**dict.fromkeys(SHARES, "%"), "s": "s", "B": "MB", "FLOP": "MFLOP"}
    unit = shown.get(objective.unit, objective.unit)
    name = objective.title.replace("train seconds", "training time").replace("peak bytes", "memory")
    return f"{name} ({unit})" if unit else name


def scale(objective: Objective) -> float:
    """Return the factor from a value to the unit of its axis."""
    return {**dict.fromkeys(SHARES, 100.0), "B": 1e-6, "FLOP": 1e-6}.get(objective.unit, 1.0)


def front_pictures(run: Run) -> list[Picture | LeftOut]:
    """Return the front twice: the accuracies of both domains, and local accuracy against training time."""
    pictures = list[Picture | LeftOut]()
    if any(GLOBAL.name in run.record(trial).values for trial in run.front):
        pictures.append(
            _picture(run, run.objective(GLOBAL.name), "forgetting", "What is gained, and what is forgotten")
        )
    if any(SECONDS.name in run.record(trial).values for trial in run.front):
        pictures.append(_picture(run, SECONDS, "time", "What is gained in which time"))
    return pictures


def cost_pictures(run: Run) -> list[Picture | LeftOut]:
    """Return local accuracy against memory, and against every further cost that is an objective."""
    others = [one for one in run.objectives if one.direction == "minimise" and one.name != SECONDS.name]
    costs = {one.name: one for one in (BYTES, *others)}
    gained = _local(run).title.replace("local", "Local")
    return [
        _picture(run, cost, cost.name.replace("_", "-"), f"{gained} against {label(cost).partition(' (')[0]}")
        for cost in costs.values()
        if any(cost.name in run.record(trial).values for trial in run.front)
    ]


def unmarked(run: Run) -> LeftOut | None:
    """Return which references no picture can mark; None where all are marked, or there is no picture."""
    missing = [PARTS[name] for name, record in references(run).items() if record is None]
    if not missing or not run.front:
        return None
    return LeftOut(f"Marks for training {' and '.join(missing)}", "not tried on these samples")


def _picture(run: Run, across: Objective, name: str, title: str) -> Picture | LeftOut:
    """Draw all trials that were scored alike, the front of these two values, and what it is compared with."""
    points = {trial: point(run, trial) for trial in scored(run)}
    points = {trial: one for trial, one in points.items() if {across.name, LOCAL.name} <= one.values.keys()}
    if len(points) < 2:  # noqa: PLR2004 - a lone dot is no picture
        return LeftOut(title, "only one trial has both values")
    for one in (LOCAL, across):
        if len({run.objective(one.name).text(other.values[one.name]) for other in points.values()}) == 1:
            return LeftOut(title, f"all trials have the same {label(run.objective(one.name)).partition(' (')[0]}")
    members = [points[trial] for trial in run.front if trial in points]
    edge = front({trial: one.values for trial, one in points.items()}, (LOCAL, across))
    ordered = sorted((points[trial] for trial in edge), key=lambda one: one.values[across.name])
    with drawing() as (figure, axes):
        rest = [one for trial, one in points.items() if trial not in run.front]
        _dots(axes, across, rest, GREY, 14, "other trials", 0.55)
        _bars(axes, across, members)
        axes.plot(*_places(across, ordered), color=BLUE, linewidth=1.2, alpha=0.6, zorder=3)
        _dots(axes, across, members, BLUE, 24, "Pareto front", 1.0)
        _references(run, axes, across)
        if run.best is not None and run.best in points:
            place = _places(across, [points[run.best]])
            best: dict[str, Any] = {"label": f"best (trial {run.best})", "zorder": 7, "linewidths": 1.6}
            axes.scatter(*place, s=110, facecolors="none", edgecolors=INK, **best)
        if across.name != GLOBAL.name and _spread(points.values(), across) > MANY_TIMES:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda _value, _: "")
        axes.set_xlabel(label(across))
        axes.set_ylabel(label(_local(run)))
        axes.margins(0.08, 0.1)
        needed = [*ordered, *_marked(run, points)]
        described = _scaled(run, axes, across, needed, list(points.values()))
        figure.legend(loc="outside lower center", ncols=3, handletextpad=0.3, columnspacing=1.2, labelcolor=MUTED)
        ends = [f"{one.name}: {_words(one, _local(run))}, {_words(one, across)}" for one in ordered]
        description = (
            f"{len(points)} trials, {len(members)} of them on the front; at its edge {'; '.join(ends)}. {described}"
        )
        return Picture(name, title, description, to_svg(figure, name, title, description), described)


def _local(run: Run) -> Objective:
    return run.objective(LOCAL.name)


def _references(run: Run, axes: "Axes", across: Objective) -> None:
    """Mark what a baseline reaches, where it was tried."""
    for name, record in references(run).items():
        if record is None or across.name not in record.values:
            continue
        marker, colour = MARKS[name]
        style: dict[str, Any] = {"color": colour, "s": 42, "zorder": 6, "edgecolors": PAPER, "linewidths": 0.8}
        axes.scatter(*_places(across, [point(run, record.trial)]), marker=marker, label=f"best of {name}", **style)


def _marked(run: Run, points: Mapping[int, Point]) -> list[Point]:
    """Return the points that a picture must show: the baselines and the best."""
    trials = {record.trial for record in references(run).values() if record is not None}
    return [one for trial, one in points.items() if trial in trials or trial == run.best]


def _scaled(run: Run, axes: "Axes", across: Objective, needed: Sequence[Point], points: Sequence[Point]) -> str:
    """Mark the given model, and limit the scale to what is compared, where all else is far below.

    Returns:
        What is left out, in words.
    """
    lowest = min(one.intervals.get(LOCAL.name, (one.values[LOCAL.name],))[0] for one in needed)
    highest = max(one.intervals.get(LOCAL.name, (0.0, one.values[LOCAL.name]))[1] for one in needed)
    floor = lowest - max(0.15 * (highest - lowest), 0.02)
    before = run.info.untouched.values.get(LOCAL.name)
    below = sum(one.values[LOCAL.name] < floor for one in points)
    lines = [f"{below} trial{'' if below == 1 else 's'}"] if below else []
    if before is not None and before >= floor:
        _untouched(axes, across, baseline_point(run))
    elif before is not None:
        lines.append(f"the untouched model ({_local(run).text(before)})")
        given = run.info.untouched.values.get(across.name)
        place: dict[str, Any] = {"xy": (0.5, 0.0), "xycoords": "axes fraction"}
        if given is not None:
            axes.plot(scale(across) * given, PERCENT * floor, color=GREEN, alpha=0)  # so that the scale reaches it
            place = {"xy": (scale(across) * given, 0.0), "xycoords": axes.get_xaxis_transform()}
        style: dict[str, Any] = {
            "textcoords": "offset points",
            "ha": "center" if given is None else "right",
            "color": GREEN,
            "zorder": 8,
        }
        axes.annotate(f"↓ untouched {_local(run).text(before)}", xytext=(0, 4), **place, **style)
    if lines:
        axes.set_ylim(PERCENT * floor, min(PERCENT * (highest + 0.02), PERCENT + 1))
    return f"Below the scale: {' and '.join(lines)}." if lines else ""


def _untouched(axes: "Axes", across: Objective, given: Point) -> None:
    """Mark the given model: a star where it has both values, else a line at its local accuracy."""
    if across.name in given.values:
        _bars(axes, across, [given], GREEN)
        axes.scatter(*_places(across, [given]), marker="*", s=120, color=GREEN, zorder=6, label="untouched")
    else:
        axes.axhline(PERCENT * given.values[LOCAL.name], color=GREEN, linestyle=(0, (4, 3)), label="untouched")


def _dots(
    axes: "Axes", across: Objective, points: Sequence[Point], colour: str, size: float, title: str, alpha: float
) -> None:
    if points:
        axes.scatter(*_places(across, points), s=size, color=colour, alpha=alpha, linewidths=0, label=title, zorder=4)


def _bars(axes: "Axes", across: Objective, points: Sequence[Point], colour: str = BLUE) -> None:
    """Draw 95 % intervals."""
    for one in points:
        place = {name: one.values[objective.name] for name, objective in (("x", across), ("y", LOCAL))}
        errors: dict[str, Any] = {}
        for name, objective in (("x", across), ("y", LOCAL)):
            if bounds := one.intervals.get(objective.name):
                low, high = bounds[0] - place[name], bounds[1] - place[name]
                errors[f"{name}err"] = [[-scale(objective) * low], [scale(objective) * high]]
        x, y = scale(across) * place["x"], PERCENT * place["y"]
        axes.errorbar(x, y, **errors, color=colour, elinewidth=0.8, alpha=0.45, zorder=2)


def _places(across: Objective, points: Iterable[Point]) -> tuple[list[float], list[float]]:
    listed = list(points)
    x = [scale(across) * one.values[across.name] for one in listed]
    return x, [PERCENT * one.values[LOCAL.name] for one in listed]


def _words(one: Point, objective: Objective) -> str:
    name = objective.name.removesuffix(ACCURACY) if objective.unit == "%" else label(objective).partition(" (")[0]
    return f"{name} {objective.text(one.values[objective.name])}"


def _spread(points: Iterable[Point], objective: Objective) -> float:
    numbers = [one.values[objective.name] for one in points]
    return max(numbers) / min(numbers) if numbers and min(numbers) > 0 else 1.0
