"""The first page of a report, for somebody who knows no machine learning."""

import base64
import shlex
from collections import Counter

from tuner.cli.text.screen import STATES, next_commands
from tuner.plan.text import plain
from tuner.results.records.baseline import UNTOUCHED
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import BUNDLE_BYTES, OBJECTIVES
from tuner.results.views.answer import are_own, exported, known, yours
from tuner.results.views.pick import nothing_feasible
from tuner.results.views.reasons import reasons
from tuner.units import format_seconds
from tuner_report.charts.drawing import LeftOut
from tuner_report.html import note, rows_of, text
from tuner_report.sections import Findings, Photo, limits

LOCAL, GLOBAL, SECONDS, PEAK = OBJECTIVES
LATENCY = "mean_latency_seconds"
#: A label is doubted where at least so many trials were scored, and all of them say something else.
DOUBTING = 4


def in_short(run: Run, winner: TrialRecord | None) -> str:
    """Return what was tried, what the best trial brings and what it costs, in sentences."""
    shown = {"Tried": _tried(run)}
    if winner is None:
        shown["Found"] = f"Nothing: {nothing_feasible(run)}."
    else:
        best = f"Trial {winner.trial} {plain(winner.plan)}. " if winner.plan is not None else ""
        shown["Best"] = f"{best}{reasons(run)}"
        shown["It brings"] = _brings(run, winner)
        shown["It keeps"] = _keeps(run, winner)
        shown["It costs"] = _costs(run, winner)
    if bundles := "; ".join(exported(run)):
        shown["Exported"] = f"{bundles.removeprefix('exported as ')}."
    return rows_of({name: text(line) for name, line in shown.items()})


def photos(run: Run, findings: Findings) -> str | LeftOut:
    """Return photos that the winner has wrong, those first whose label may be what is wrong."""
    title = f"{run.info.task.noun.capitalize()} it still gets wrong"
    if not findings.photos:
        return LeftOut(title, findings.no_photos or "the task was not opened")
    doubted = [one for one in findings.photos if is_doubted(one)]
    others = [one for one in findings.photos if one not in doubted]
    parts = []
    if doubted:
        line = f"All of {doubted[0].of} trials have these wrong. Look whether the label is right."
        parts.append(f"<h3>Labels to look at</h3>{note(line)}{_album(doubted)}")
    if others:
        title = "<h3>Wrong, and surest of it</h3>" if doubted else ""
        parts.append(f"{title}{_album(others)}")
    shown = "Not seen in training, and wrong with the best trial; the surest mistakes come first."
    return note(f"{shown} They are inside this file; --no-photos leaves them out.") + "".join(parts)


def is_doubted(photo: Photo) -> bool:
    """Return whether a label may be wrong: none of several trials has the sample right."""
    return photo.of >= DOUBTING and photo.wrong_in == photo.of


def following(run: Run, findings: Findings) -> str:
    """Return the commands that come next, each with what it does."""
    commands = list(next_commands(run))
    if not commands:
        return ""
    export, show = commands
    bundle, noun = shlex.split(export)[3], run.info.task.noun
    lines = [
        (export, "writes the best model into a folder that needs no PyTorch"),
        (shlex.join(["tuner", "predict", bundle, "FILE"]), f"names one of your {noun}"),
    ]
    if any(map(is_doubted, findings.photos)) and not run.info.config.task.startswith("<"):
        check = shlex.join(["tuner", "check", run.info.config.task])
        lines.append((check, f"lists {noun} whose label the others contradict"))
    lines.append((show, "shows all that was measured of the best trial"))
    return "".join(f"<pre><code>{text(command)}</code></pre>{note(f'It {what}.')}" for command, what in lines)


def _album(shown: list[Photo]) -> str:
    items = [
        f'<figure><img alt="a photo of the class {text(one.truth)}" '
        f'src="data:image/jpeg;base64,{base64.b64encode(one.jpeg).decode()}">'
        f"<figcaption><b>{text(one.truth)}</b>, taken for <b>{text(one.taken_for)}</b> "
        f"{text(f'({100 * one.probability:.0f} %)')}<br>{text(one.file)}</figcaption></figure>"
        for one in shown
    ]
    return f'<div class="photos">{"".join(items)}</div>'


def _tried(run: Run) -> str:
    """Say how many plans were tried, in which time, and how the trials ended."""
    ended = Counter[str](record.state for record in run.records if record.same_as is None)
    rest = [f"{number} {words}" for state, words in STATES.items() if (number := ended[state])]
    also = f", {', '.join(rest)}" if rest else ""
    asked = f" Limits: {', '.join(found)}." if (found := limits(run)) else ""
    time = format_seconds(run.info.spent.seconds)
    return f"{ended.total()} ways to train the model, in {time}: {ended['done']} ran to their end{also}.{asked}"


def _brings(run: Run, winner: TrialRecord) -> str:
    """Say how many of the user's samples are right, next to what comes free."""
    value, count = winner.values.get(LOCAL.name), run.samples_of(LOCAL.name)
    if value is None:
        return ""
    one, noun = run.objective(LOCAL.name), run.info.task.noun
    if not (run.info.task.labelled and run.info.targets.interval(value, count)):
        return f"On {yours(run)}: {one.title} {run.text(one, value)}."
    told = f"Of {count:,} of your {noun} that training did not see, {round(value * count):,} are right"
    others = [
        f"{'the model as it came' if base.name == UNTOUCHED else f'a {base.name}, the simplest way,'} has "
        f"{one.text(base.values[LOCAL.name])}"
        for base in run.info.baselines
        if LOCAL.name in base.values and not (base.name == UNTOUCHED and are_own(run))
    ]
    return "; ".join((f"{told}: {run.text(one, value)}", *others)) + "."


def _keeps(run: Run, winner: TrialRecord) -> str:
    """Say what is left of the known classes."""
    value, before = winner.values.get(GLOBAL.name), run.info.untouched.values.get(GLOBAL.name)
    if value is None:
        return "Not measured: the task has no data of the known classes."
    one = run.objective(GLOBAL.name)
    was = "" if before is None else f", which was {one.text(before)}"
    return (
        f"On {known(run)} {run.text(one, value)} is right{was}."
        if run.info.targets.interval(value, run.samples_of(GLOBAL.name))
        else (f"On {known(run)} {one.title} {run.text(one, value)}{was}.")
    )


def _costs(run: Run, winner: TrialRecord) -> str:
    """Say what the winner's own training took, and what its model takes."""
    values, parts = winner.values, list[str]()
    if SECONDS.name in values:
        parts.append(f"{format_seconds(values[SECONDS.name])} to train")
    if values.get("fill_seconds") and (once := run.info.spent.phases.get("features")):
        parts.append(f"before that, once for all trials, {format_seconds(once)} to compute features")
    if PEAK.name in values:
        parts.append(f"{PEAK.text(values[PEAK.name])} of memory")
    if BUNDLE_BYTES.name in values:
        parts.append(f"a file of {BUNDLE_BYTES.text(values[BUNDLE_BYTES.name])}")
    if LATENCY in values:
        parts.append(f"{1000 * values[LATENCY]:.3g} ms for a prediction on this device")
    line = "; ".join(parts)
    return f"{line[0].upper()}{line[1:]}." if line else ""
