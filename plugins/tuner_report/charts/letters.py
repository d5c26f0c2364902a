"""A run's front, how it grew, and where its time went, drawn with letters."""

from collections.abc import Sequence

from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES, Objective
from tuner.results.views.answer import answer
from tuner.units import format_seconds
from tuner_report.charts.history import hypervolume
from tuner_report.charts.points import Point, baseline_point, point, references, scored

#: Letters of a picture, without its scale; of the bars; and of names.
WIDEST, NARROWEST, HEIGHT, MARGIN = 72, 24, 14, 10
BARS = "▁▂▃▄▅▆▇█"
LOCAL, GLOBAL, SECONDS, _ = OBJECTIVES
KEY = "● front   ◉ best   · other trials   ★ untouched   h head only   e everything"


def plots(run: Run, width: int) -> str:
    """Return the pictures, at most `width` letters wide."""
    wide = max(NARROWEST, min(WIDEST, width - MARGIN))
    drawn = [_scatter(run, across, wide) for across in (run.objective(GLOBAL.name), SECONDS)]
    parts = [*filter(None, drawn), KEY if any(drawn) else "", _history(run, wide), _phases(run, wide), answer(run)]
    return "\n\n".join(filter(None, parts))


def _scatter(run: Run, across: Objective, wide: int) -> str:
    """Return local accuracy over another value; nothing where no trial of the front has both."""
    marks = [(sign, one) for sign, one in _marks(run) if {LOCAL.name, across.name} <= one.values.keys()]
    if all(sign == "★" for sign, _ in marks):
        return ""
    columns = _scale([one.values[across.name] for _, one in marks])
    rows = _scale([one.values[LOCAL.name] for _, one in marks])
    grid = [[" "] * wide for _ in range(HEIGHT)]
    for sign, one in marks:
        column = round(_place(one.values[across.name], columns) * (wide - 1))
        row = round((1 - _place(one.values[LOCAL.name], rows)) * (HEIGHT - 1))
        grid[row][column] = sign
    local, name = run.objective(LOCAL.name), across.title.replace("train seconds", "training time")
    lines = [f"{local.title} over {name}"]
    for number, row_of in enumerate(grid):
        at = {0: rows[1], HEIGHT - 1: rows[0]}.get(number)
        lines.append(f"{'' if at is None else local.text(at):>8} │{''.join(row_of).rstrip()}")
    ends = across.text(columns[0]), across.text(columns[1])
    lines += [f"{'':8} └{'─' * wide}", f"{'':10}{ends[0]}{ends[1]:>{wide - len(ends[0])}}"]
    return "\n".join(lines)


def _marks(run: Run) -> list[tuple[str, Point]]:
    """Return what is drawn with its sign, what is most important last."""
    others = [("·", point(run, trial)) for trial in scored(run) if trial not in run.front]
    members = [("●", point(run, trial)) for trial in run.front]
    given = [("★", baseline_point(run))]
    bases = [(name[0], point(run, record.trial)) for name, record in references(run).items() if record is not None]
    best = [] if run.best is None else [("◉", point(run, run.best))]
    return [*others, *members, *given, *bases, *best]


def _history(run: Run, wide: int) -> str:
    """Return the front's hypervolume over the time of all trials, a line of bars for each rung."""
    lines = []
    for stretch in hypervolume(run):
        seconds = [second for second, _ in stretch.points]
        areas = [area for _, area in stretch.points]
        most = max(*areas, 1e-9)
        steps = min(wide, 40)
        ends = [seconds[0] + (seconds[-1] - seconds[0]) * step / max(1, steps - 1) for step in range(steps)]
        at = [max((area for second, area in stretch.points if second <= end), default=0.0) for end in ends]
        bars = "".join(BARS[round(area / most * (len(BARS) - 1))] for area in at)
        of = "all samples" if stretch.share == 1 else f"{100 * stretch.share:.3g} % of the samples"
        lines.append(f"{bars}  {areas[-1]:.3f} on {of}, until {format_seconds(seconds[-1])}")
    return "\n".join(["hypervolume of the front", *lines]) if lines else ""


def _phases(run: Run, wide: int) -> str:
    """Return the seconds of each phase as bars."""
    phases = sorted(run.info.spent.phases.items(), key=lambda phase: -phase[1])
    if not phases or phases[0][1] <= 0:
        return ""
    names = max(len(name) for name, _ in phases)
    longest = max(1, wide - names - MARGIN)
    lines = [
        f"{name:>{names}} {'█' * round(longest * max(0.0, seconds) / phases[0][1])} {format_seconds(seconds)}"
        for name, seconds in phases
    ]
    return "\n".join(["where the time went", *lines])


def _scale(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _place(value: float, scale: tuple[float, float]) -> float:
    """Return where on a scale a value is, from 0 to 1."""
    low, high = scale
    return (value - low) / (high - low) if high > low else 0.5
