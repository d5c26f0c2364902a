"""The course of a run: how its front grew, what the time went to, and how its best trials learnt."""

from collections.abc import Sequence
from typing import Any

from tuner.results.run import Run
from tuner.units import format_seconds
from tuner_report.charts.drawing import BLUE, GREEN, GREY, INK, MUTED, ORANGE, VIOLET, LeftOut, Picture, drawing, to_svg
from tuner_report.charts.history import hypervolume

LINES = (BLUE, ORANGE, GREEN, VIOLET)
#: Phases below this share of the time are shown together.
SMALL = 0.01
#: As many trials have a learning curve.
MOST_CURVES = 8
#: A hypervolume that grows by less is a flat line.
FLAT = 0.002


def growth_picture(run: Run) -> Picture | LeftOut:
    """Return the hypervolume of the front over the time of all trials, where it grew."""
    name, title, stretches = "history", "How the front grew", hypervolume(run)
    if not any(areas[-1] - areas[0] > FLAT for areas in ([area for _, area in one.points] for one in stretches)):
        return LeftOut(title, "no trial was much better than the first" if stretches else "no trial was scored")
    noun = run.info.task.noun
    what = f"accuracy on your {noun} × on the known classes" if run.scored_samples.get("global") else "best accuracy"
    with drawing() as (figure, axes):
        words = []
        for stretch, colour in zip(stretches, LINES * len(stretches), strict=False):
            seconds = [second for second, _ in stretch.points]
            areas = [area for _, area in stretch.points]
            of = f"all {noun}" if stretch.share == 1 else f"{100 * stretch.share:.3g} % of the {noun}"
            axes.plot(seconds, areas, drawstyle="steps-post", color=colour, label=of)
            axes.scatter(seconds[-1:], areas[-1:], s=14, color=colour, zorder=4)
            words.append(f"on {of} {areas[-1]:.3f} after {format_seconds(seconds[-1])}")
        axes.set_xlabel("time of all trials so far (s)")
        axes.set_ylabel(what)
        axes.margins(0.04, 0.1)
        if len(stretches) > 1:
            figure.legend(loc="outside lower center", ncols=2, labelcolor=MUTED)
        text = f"{what[0].upper()}{what[1:]}: {'; '.join(words)}."
        return Picture(name, title, text, to_svg(figure, name, title, text), _rungs(len(stretches)))


def phases_picture(run: Run) -> Picture | LeftOut:
    """Return what the time went to, where the run wrote it down."""
    name, title, phases = "phases", "Where the time went", run.info.spent.phases
    whole = sum(phases.values())
    if whole <= 0:
        return LeftOut(title, "the run did not write it down")
    shown = sorted(
        ((what, seconds) for what, seconds in phases.items() if seconds >= SMALL * whole), key=lambda p: p[1]
    )
    rest = whole - sum(seconds for _, seconds in shown)
    shown = [("all else", rest), *shown] if rest >= SMALL * whole else shown
    with drawing(height=0.75 + 0.3 * len(shown)) as (figure, axes):
        names = [_phase(run, what) for what, _ in shown]
        bars = axes.barh(names, [seconds for _, seconds in shown], color=BLUE, height=0.62)
        axes.bar_label(bars, [format_seconds(seconds) for _, seconds in shown], padding=4, color=INK)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds")
        axes.margins(0.14, 0.02)
        axes.tick_params(axis="y", labelcolor=INK)
        text = ", ".join(f"{_phase(run, what)} {format_seconds(seconds)}" for what, seconds in reversed(shown))
        return Picture(name, title, text, to_svg(figure, name, title, text))


def learning_picture(run: Run) -> Picture | LeftOut:
    """Return the training loss by epoch of the trials worth a look that trained for more than one."""
    name, title = "learning", "How the best trials learnt"
    logs = {trial: run.record(trial).epochs for trial in _members(run)}
    curves = {trial: [epoch["loss"] for epoch in log if "loss" in epoch] for trial, log in logs.items()}
    curves = {trial: losses for trial, losses in curves.items() if len(losses) > 1}
    if not curves:
        return LeftOut(title, "they have no epochs, or one")
    with drawing() as (figure, axes):
        for trial, losses in curves.items():
            is_best = trial == run.best
            style: dict[str, Any] = (
                {"color": BLUE, "linewidth": 2.2, "zorder": 4} if is_best else {"color": GREY, "linewidth": 1.1}
            )
            epochs = range(1, len(losses) + 1)
            axes.plot(
                epochs, losses, marker="o", markersize=3.2, label=f"best (trial {trial})" if is_best else None, **style
            )
            if not is_best:
                axes.annotate(f"{trial}", (len(losses), losses[-1]), (4, -2), textcoords="offset points", color=MUTED)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("epoch")
        axes.set_ylabel("training loss (mean of the epoch)")
        axes.margins(0.06, 0.08)
        if run.best in curves:
            figure.legend(loc="outside lower center", labelcolor=MUTED)
        ends = [f"trial {trial} from {losses[0]:.3g} to {losses[-1]:.3g}" for trial, losses in curves.items()]
        text = f"Training loss by epoch: {'; '.join(ends)}."
        caption = "Each line is a trial worth a look, by its number. Losses of plans that add terms are not comparable."
        return Picture(name, title, text, to_svg(figure, name, title, text), caption)


def _members(run: Run) -> Sequence[int]:
    """Return the trials worth a look, the best among them, the last one drawn on top."""
    others = [trial for trial in run.shortlist or run.front if trial != run.best][: MOST_CURVES - 1]
    return others if run.best is None else [*others, run.best]


def _rungs(number: int) -> str:
    if number == 1:
        return ""
    return "Plans are tried on few samples first. Scores on different samples are not comparable: each has its line."


def _phase(run: Run, what: str) -> str:
    """Return a phase for people: rungs by their share of the samples."""
    if not what.startswith("rung "):
        return what
    rung = what.removeprefix("rung ")
    if rung.startswith("-"):
        return "cross-validation"
    shares = {str(record.rung): record.plan.data.share for record in run.records if record.plan is not None}
    share = shares.get(rung, 1.0)
    return f"trials on all {run.info.task.noun}" if share == 1 else f"trials on {100 * share:.3g} %"
