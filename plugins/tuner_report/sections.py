"""The sections of a report, from a run and what was found out about it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tuner.distribution import CANDIDATES, offered
from tuner.metrics import percent
from tuner.plan.text import describe
from tuner.planner.memory.placement import smallest
from tuner.planner.memory.step import StepPlan
from tuner.planner.memory.summary import memory_summary, picture
from tuner.results.records.classes import Classes
from tuner.results.records.counts import MOST_CONFUSED
from tuner.results.records.trial import STATES, TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import Objective, title_of
from tuner.results.scores.strategies import FRONT_LOST, LOST, has_area, strategies_of
from tuner.results.views import baselines
from tuner.results.views.answer import known
from tuner.results.views.pick import nothing_feasible
from tuner.results.views.reasons import left_out, members_to_show
from tuner.targets import Targets
from tuner.targets.base import ERROR, TOP
from tuner.units import format_bytes, format_limit, format_seconds
from tuner_report.charts.drawing import BLUE, INK, MUTED, ORANGE, LeftOut, Picture, drawing, to_svg
from tuner_report.charts.points import interval
from tuner_report.classes import class_pictures, confusions
from tuner_report.html import figure, inline, note, pictures, rows_of, table, tag, text

#: As many confusions and refused trials are listed.
MOST_CONFUSIONS, MOST_REFUSED = 8, 20
#: In the place of a plan.
BASELINE = "to compare with"
#: As many names of classes are listed.
MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Photo:
    """A validation sample of the user that a trial's model has wrong.

    Attributes:
        truth: Name of its class.
        taken_for: Name of the class that was predicted.
        probability: Of that class, by the model.
        jpeg: The photo, small.
        file: The end of its file's path, or its place in an array.
        wrong_in: Number of other trials that have it wrong too.
        of: Number of trials that this is known of.
    """

    truth: str
    taken_for: str
    probability: float
    jpeg: bytes
    file: str = ""
    wrong_in: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """What a report shows besides the run itself.

    Attributes:
        importance: Shares of 1 by knob, by objective.
        importance_trials: Number of trials that they are of.
        step: The winner's training step; None where there is none to show.
        no_step: Why.
        photos: Photos that the winner has wrong.
        no_photos: Why there are none, as the rest of a sentence.
    """

    importance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    importance_trials: int = 0
    step: StepPlan | None = None
    no_step: str = ""
    photos: tuple[Photo, ...] = ()
    no_photos: str = ""


#: Of so few classes, five guesses are half of them: they say nothing.
MANY_CLASSES = 10


def facts(run: Run, winner: TrialRecord) -> str:
    """Return the winner's values next to the untouched model's."""
    items = []
    for objective in run.objectives:
        value = winner.values[objective.name]
        before = run.info.untouched.values.get(objective.name)
        bounds = interval(run, objective.name, value)
        small = [] if before is None else [f"untouched {objective.text(before)}"]
        small += [f"95 % interval {percents(bounds)}"] if bounds else []
        under = tag("small", text(" · ".join(small))) if small else ""
        items.append(f"<div><dt>{text(words(objective))}</dt><dd>{text(objective.text(value))}{under}</dd></div>")
    has_many = len(run.info.classes.labels) > MANY_CLASSES
    for name, value in winner.values.items():
        if (TOP in name and has_many) or name.endswith(ERROR):
            shown, before = (percent if TOP in name else _number), run.info.untouched.values.get(name)
            under = "" if before is None else tag("small", text(f"untouched {shown(before)}"))
            title = title_of(name, run.info.targets)
            items.append(f"<div><dt>{text(title)}</dt><dd>{text(shown(value))}{under}</dd></div>")
    return f'<dl class="facts">{"".join(items)}</dl>'


def asked(run: Run) -> str:
    """Return the task, the model, the data, the limits and what came of the search."""
    info, task, model, targets = run.info, run.info.task, run.info.model, run.info.targets
    data = f"{task.local_train:,} {task.noun} of the user to train on, {task.local_val:,} to score on"
    if info.config.folds:
        data += f", and {info.config.folds} folds of those to train on"
    if task.global_per_class:
        data += f"; of {known(run)} {task.mixed_samples(1.0):,} and {task.global_val:,}"
    point = offered(CANDIDATES).get("read")
    others = None if point is None else point.load()(run.folder)
    chosen = "" if others is None else f"; {others['chosen']}, chosen from {len(others['candidates'])} candidates"
    rows = {
        "Task": info.task_name,
        targets.noun.capitalize(): _classes(info.classes, targets),
        "Data": data,
        "Model": f"{model.name.rpartition(':')[0] or model.name}: {model.num_blocks} blocks, "
        f"{sum(block.parameters for block in model.blocks) / 1e6:.3g} million parameters, "
        f"{sum(block.flops for block in model.blocks) / 1e6:,.3g} MFLOP a prediction{chosen}",
        "Best is": ", ".join(f"{one.direction} {words(one)}" for one in run.objectives),
        "Limits": ", ".join(limits(run)) or "none",
        "Search space": f"{info.space_name}, seed {info.config.seed}",
        "Ended": info.ended,
    }
    other = f", global that of {known(run)}" if task.global_per_class else ""
    line = f"Local is the user's own data{other}. {targets.score_meaning} on validation samples."
    return rows_of({name: text(value) for name, value in rows.items()}) + note(line)


#: Limits by their names: the option, and how one that was not typed is written.
LIMITS = {
    "time_seconds": ("time", format_seconds),
    "train_seconds": ("train_time", format_seconds),
    "memory_bytes": ("memory", format_limit),
    "storage_bytes": ("storage", format_limit),
    "trials": ("trials", "{:,}".format),
    "forgetting": ("forget_at_most", lambda value: f"{100 * value:.3g} %"),
    "flat_seconds": ("stop_when_flat", format_seconds),
}


def limits(run: Run) -> list[str]:
    """Return the limits, in the user's own words where these are known; the others are the search space's."""
    config, lines = run.info.config, list[str]()
    for name, (option, written) in LIMITS.items():
        value, typed = getattr(config.limits, name), getattr(config, option)
        if value is not None:
            own = f"{written(value)} (default)" if typed is None else f"{typed}"
            lines.append(f"{option.replace('_', ' ')} {own}")
    return lines


def front(run: Run, drawn: Iterable[Picture | LeftOut]) -> str:
    """Return the front as pictures, which are drawn already, and as a table."""
    if not run.front:
        return note(f"The front is empty: {nothing_feasible(run)}.")
    members = members_to_show(run)
    names = ["trial", *(words(one) for one in run.columns), "plan"]
    rows = [[name, *cells, BASELINE] for name, cells in baselines.rows(run)]
    given = len(rows)
    for trial in members:
        record = run.record(trial)
        values = [_value(run, one, record.values.get(one.name)) for one in run.columns]
        mark = "→ " if trial == run.best else ""
        rows.append([f"{mark}{trial}", *values, describe(record.plan) if record.plan else ""])
    marked = members.index(run.best) + given if run.best in members else None
    counts = " and ".join(f"{count:,} {domain}" for domain, count in run.scored_samples.items() if count)
    judged = f" (local: {run.folds} folds of local.train, and local.val)" if run.folds else ""
    targets = run.info.targets
    of = f"{run.info.task.noun}{judged}{targets.score_note}"
    scored = f"Scored on {counts} validation {of}."
    if run.left_out_samples:
        own = f"all {run.left_out_samples:,} local {run.info.task.noun}"
        scored += f" Solved heads are also scored on {own}, by leave-one-out."
    bars = f" Bars and brackets are {targets.intervals} (Wilson)." if targets.intervals else ""
    best = " → is the best on the user's data of those that keep the known classes." if run.best is not None else ""
    left = left_out(run, members).replace(", which --all shows", "")
    more = f" {left}." if left else ""
    listed = table(names, rows, names[:-1], marked)
    compared = "".join(map(note, (*baselines.notes(run), *baselines.verdicts(run, members))))
    return pictures(drawn) + note(f"{scored}{bars}{best}{more}") + listed + compared


def spent(run: Run) -> str:
    """Return what the search took, and how its trials ended."""
    by_state = {state: sum(one.state == state and one.same_as is None for one in run.records) for state in STATES}
    states = ", ".join(f"{count} {state}" for state, count in by_state.items() if count) or "none"
    took = f"{format_seconds(run.info.spent.seconds)} in all"
    states += f", {run.of_prior}" if run.of_prior else ""
    return note(f"Trials: {states}; {took}; the feature store holds {format_bytes(run.info.spent.storage_bytes)}.")


def strategies(run: Run) -> str | LeftOut:
    """Return what each strategy that is not in all plans came to."""
    found = strategies_of(run.info.strategies, run.records)
    if len(found) < 2:  # noqa: PLR2004 - there is nothing to compare
        return LeftOut("Which strategies paid", "there is nothing to choose between" if found else "all plans have all")
    local = run.objective("local_accuracy")
    losses = has_area(run.records)
    names = ("strategy", f"best {local.title}", *([LOST] if losses else []), "tried", "seconds", "why not")
    rows = [
        (
            one.name,
            "–" if one.best is None else f"{local.text(one.best)} (trial {one.trial})",
            *([f"{100 * one.adds:.1f} points"] if losses else []),
            one.tried,
            f"{one.seconds:,.1f}",
            one.reason,
        )
        for one in found
    ]
    return table(names, rows, names[1:-1]) + (note(FRONT_LOST) if losses else "")


def classes(run: Run, winner: TrialRecord | None) -> str:
    """Return what the winner does to each class."""
    if winner is None:
        return ""
    drawn: list[Picture] = class_pictures(run, winner)
    if not drawn:
        return note(run.info.targets.no_confusions)
    return pictures(drawn) + _confusions(run, winner)


def _confusions(run: Run, winner: TrialRecord) -> str:
    """Return the most frequent confusions of each domain; those of one sample, maybe chance, are counted."""
    listed, single, is_all = list[tuple[str, str, str, str]](), 0, True
    for domain, whose in (("local", "the user's"), ("global", "known")):
        found = confusions(run, winner, domain)
        several = [one for one in found if one.count > 1]
        single, is_all = single + len(found) - len(several), is_all and len(found) < MOST_CONFUSED
        listed += [
            (one.name, one.taken_for, f"{one.count} of {one.samples}", whose) for one in several[:MOST_CONFUSIONS]
        ]
    if not listed and not single:
        return ""
    names, more = ("class", "taken for", "samples", "whose"), "" if is_all else " or more"
    pairs, are = ("pair", ("was", "is")) if single == 1 and is_all else ("pairs", ("were", "are"))
    rest = note(
        f"{single:,}{more} {pairs} of classes {are[0]} confused only once and {are[1]} not listed: it may be chance."
    )
    shown = table(names, listed, names[2:3]) if listed else ""
    return f"<details><summary>The most frequent confusions</summary>{shown}{rest if single else ''}</details>"


def knobs(findings: Findings) -> Picture | LeftOut:
    """Return how much each knob matters, or why that cannot be said."""
    drawn = knob_picture(findings.importance, findings.importance_trials)
    if drawn is not None:
        return drawn
    count = findings.importance_trials
    trials = f"{count} trial{' was' if count == 1 else 's were'} scored on the same samples"
    if count < LEAST_TRIALS:
        return LeftOut(KNOBS, f"{trials}, and it takes {LEAST_TRIALS} to tell")
    return LeftOut(KNOBS, f"{trials}, and no knob made a difference that is larger than chance")


def memory(winner: TrialRecord | None, findings: Findings) -> str | LeftOut:
    """Return the planned memory of the winner's training step."""
    step = findings.step
    if winner is None or winner.plan is None or step is None:
        return LeftOut("Memory of a training step", findings.no_step or "there is no trial")
    planner, placement = smallest(step.tensors)
    summary = memory_summary(step.tensors, placement, planner, step.steps)
    drawn = inline(picture(step.tensors, placement, step.steps, ""), "memory over one training step")
    whole = format_bytes(summary["max_live_bytes"])
    caption = (
        f"One step of {winner.plan.recipe.batch_size} samples needs {whole} in addition to the weights, most of it at "
        f"{summary['peak_step']['name']}. Each rectangle is a tensor, from when it is made to when it is last read."
    )
    shown = figure(Picture("memory", "Tensors over one training step", caption, drawn, caption), "wide")
    rows = [(one["name"], format_bytes(one["bytes"]), one["kind"]) for one in summary["largest"]]
    listed = table(("tensor", "size", "kind"), rows, ("size",))
    return f"{shown}<details><summary>The largest tensors at the peak</summary>{listed}</details>"


def refused(run: Run) -> str | LeftOut:
    """Return the trials that were not run to their end, with the reason."""
    ended = [one for one in run.records if one.state in {"rejected", "killed", "failed"} and one.same_as is None]
    over = [one for one in run.records if any(value > 0 for value in one.constraint.values())]
    listed = [*ended, *(one for one in over if one not in ended)]
    if not listed:
        return LeftOut("What was refused", "every trial ran, and obeyed every limit")
    rows = [
        (one.trial, one.reason or _broken(one), one.state, describe(one.plan) if one.plan else "")
        for one in listed[:MOST_REFUSED]
    ]
    rest = len(listed) - len(rows)
    shown = table(("trial", "reason", "state", "plan"), rows, ("trial",))
    return shown + note(f"{rest} more are in the run." if rest else "")


def words(objective: Objective) -> str:
    """Return an objective's name for people."""
    return objective.title.replace("train seconds", "training time").replace("peak bytes", "memory")


def percents(bounds: tuple[float, float]) -> str:
    """Return an interval of shares in percent."""
    return f"{100 * bounds[0]:.0f}–{100 * bounds[1]:.0f} %"


def _number(value: float) -> str:
    return f"{value:,.3g}"


def _value(run: Run, objective: Objective, value: float | None) -> str:
    if value is None:
        return "–"
    bounds = interval(run, objective.name, value)
    return objective.text(value) + (f" ({100 * bounds[0]:.0f}–{100 * bounds[1]:.0f})" if bounds else "")


def _classes(known: Classes, targets: Targets) -> str:
    """Return the names of the local classes, and how many the given model knew; without any those of its outputs."""
    names = [known.labels[row] for row in targets.classes(known.local)]
    first = names[:MOST_NAMES] or known.labels[:MOST_NAMES]
    listed = ", ".join(first) + (", …" if len(names or known.labels) > MOST_NAMES else "")
    if not names:
        return listed
    if not known.known:  # no data of what it knew: what that was is not known here
        return f"{listed} ({len(names)}); all new to the given model"
    which = "none of them" if known.are_new else f"{sum(row < known.known for row in known.local)} of them"
    return f"{listed} ({len(names)}); the given model knew {which}, and {known.known} classes in all"


def _broken(record: TrialRecord) -> str:
    """Return which limits a trial that was scored is over."""
    return ", ".join(f"over --{name}" for name, value in record.constraint.items() if value > 0)


#: As many knobs are shown, and the title above them.
MOST_KNOBS, KNOBS = 10, "Which knobs mattered"
#: Trials of a rung from which an importance is more than chance.
LEAST_TRIALS = 20
COLOURS = {"local_accuracy": BLUE, "global_accuracy": ORANGE}


def knob_picture(importance: Mapping[str, Mapping[str, float]], trials: int) -> Picture | None:
    """Return the importance of the knobs as bars; None where none is known.

    Args:
        importance: Shares of 1 by knob, by objective.
        trials: Number of trials that they are of.
    """
    known = {objective: shares for objective, shares in importance.items() if shares}
    if not known:
        return None
    knobs = {
        knob: max(shares.get(knob, 0.0) for shares in known.values()) for shares in known.values() for knob in shares
    }
    shown = sorted(knobs, key=lambda knob: knobs[knob])[-MOST_KNOBS:]
    name, title = "knobs", KNOBS
    height = 0.8 / len(known)
    with drawing(height=1.0 + 0.34 * len(shown)) as (figure, axes):
        for number, (objective, shares) in enumerate(known.items()):
            places = [place + 0.4 - height * (number + 0.5) for place in range(len(shown))]
            widths = [100 * shares.get(knob, 0.0) for knob in shown]
            label = objective.replace("_", " ")
            axes.barh(places, widths, height=0.85 * height, color=COLOURS.get(objective, BLUE), label=label)
        axes.set_yticks(range(len(shown)), shown)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xlabel("importance (%)")
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside lower center", ncols=2, labelcolor=MUTED)
        lists = (
            f"for {objective.replace('_', ' ')} "
            + ", ".join(f"{knob} {100 * share:.0f} %" for knob, share in list(shares.items())[:MOST_KNOBS])
            for objective, shares in known.items()
        )
        text = f"Importance of the knobs: {'; '.join(lists)}."
        caption = (
            f"How much each knob decides whether a trial is among the best quarter of {trials} trials on the same "
            "samples (PED-ANOVA). Knobs that matter no more than by chance are left out."
        )
        return Picture(name, title, text, to_svg(figure, name, title, text), caption)
