"""The screen that a run ends with: the answer, what else there is, where the time went, and what to do next."""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.table import Table

from tuner.plan.text import SOLVED, plain, trained_part
from tuner.planner.device import BUSY
from tuner.results.folder import read_exports
from tuner.results.records.baseline import UNTOUCHED
from tuner.results.records.trial import SCORED, binding
from tuner.results.run import Run
from tuner.results.scores.objectives import BUNDLE_BYTES, OBJECTIVES, Objective
from tuner.results.scores.pareto import front, shortlist
from tuner.results.views import baselines
from tuner.results.views.answer import answer, are_own, exported, known, not_judged, of_share, yours
from tuner.results.views.pick import PICKS, named_picks
from tuner.results.views.plausible import warnings_of
from tuner.results.views.reasons import named, reasons
from tuner.units import format_seconds

#: As many trials as a screen has room for.
MOST_ROWS = 7
LATENCY = "mean_latency_seconds"
LOCAL, GLOBAL, SECONDS, PEAK = OBJECTIVES
_WORDS = {BUNDLE_BYTES.name: "file", "mean_flops": "a prediction", LATENCY: "to predict"}
_PART = re.compile(r"^the | of \d+(?= blocks)")
REST = "the rest"
#: Titles of columns that hold words, which are on the left.
WORDS = ("what trains", "strategy")
#: What the phases of a run are called; those of a name that is not here are trials.
PHASES = {
    "features": "computing features for all trials",
    "baselines": "models to compare with",
    "starting": "starting",
    "measuring": "measuring this device",
    "database": "the database",
    "refit": "the refit of the pick",
    "other": REST,
}
STATES = {
    "rejected": "refused before training",
    "stopped": "stopped early",
    "killed": "ended by a limit",
    "failed": "failed",
}
#: Spaces within a figure: lines are not broken there.
_FIGURE = re.compile(r"(?<=\d) (?=%|\(|[kMG]?B\b|[kMG]?FLOP|m?s\b|points?\b)|(?<=\dm) (?=\d)|(?<=[Tt]rial) (?=\d)")
_KEPT = "\N{NO-BREAK SPACE}"
#: Phases that take a smaller share of the time are summed.
SMALL = 0.04


def print_screen(run: Run, console: Console, *, whole: bool = False, artifacts: str | Path | None = None) -> None:
    """Print what a run came to, for somebody who has not read the documents."""
    print_text(console, answer(run), *warnings_of(run.info))
    if run.front:
        members = run.front if whole else _rows(run)
        table, intervals = _table(run, members, console.width)
        console.print(table)
        print_text(console, *_below(run, members, intervals))
    if len(run.info.kinds) > 1:
        print_text(console, _kinds(run))
    print_text(console, *exported(run), *_spent(run), *_next(run, artifacts))


def print_text(console: Console, *texts: str) -> None:
    """Print paragraphs, broken at words and never within a figure."""
    for text in texts:
        for line in wrap(_FIGURE.sub(_KEPT, text), console.width, break_long_words=False, break_on_hyphens=False):
            console.print(line.replace(_KEPT, " "), highlight=False, markup=False, soft_wrap=True)


def table_of(titles: Sequence[str], rows: Sequence[Sequence[str]], *, whole: bool = False) -> Table:
    """Return a table without lines: titles may be broken at words, and cells in front of a bracket, if not `whole`."""
    table = Table(box=None, pad_edge=False)
    for title, *cells in zip(titles, *rows, strict=True):
        parts = cells if whole else [part for cell in cells for part in re.split(r" (?=\()", cell)]
        least = max(map(len, (*title.split(), *parts)))
        fixed = least >= max(map(len, (title, *cells)))  # or rich breaks its figures before the titles of others
        table.add_column(title, justify="left" if title in WORDS else "right", min_width=least, no_wrap=fixed)
    for row in rows:
        table.add_row(*row)
    return table


def next_commands(run: Run, artifacts: str | Path | None = None) -> Iterator[str]:
    """Yield commands that use a finished run; none where its front is empty.

    Workers of a study put the weights of the front where `artifacts` says; the folder has those of its own trials.
    """
    taken, bundle = {one.bundle for one in read_exports(run.folder)}, f"{run.folder.name}-bundle"
    while bundle in taken:
        bundle += "-2"
    if not run.front:
        return
    if artifacts is None and run.place == str(run.folder):
        yield shlex.join(["tuner", "export", run.place, bundle])
    else:
        where = "WHERE" if artifacts is None else str(artifacts)
        yield shlex.join(["tuner", "export", run.info.config.study, bundle, "--artifacts", where])
    yield shlex.join(["tuner", "show", run.place, str(run.front[0] if run.best is None else run.best)])


def _columns(run: Run, members: Sequence[int]) -> list[tuple[str, Objective]]:
    """Return what is shown of trials, with the words over each: scores, what the search space asks for, and costs."""
    values = [run.record(trial).values for trial in members]
    asked = [one for one in run.objectives if one.name not in {LOCAL.name, GLOBAL.name, SECONDS.name, PEAK.name}]
    named = [
        ("your classes" if are_own(run) else yours(run), run.objective(LOCAL.name)),
        (known(run).removeprefix("the "), run.objective(GLOBAL.name)),
        ("to train", SECONDS),
        ("memory", PEAK),
        *((_WORDS.get(one.name, one.title), one) for one in asked if not one.name.endswith("_loss")),
    ]
    if BUNDLE_BYTES not in asked and len({_size(own) for own in values}) > 1:
        named.append((_WORDS[BUNDLE_BYTES.name], BUNDLE_BYTES))
    return [(title, one) for title, one in named if any(one.name in own for own in values)]


def _size(values: Mapping[str, float]) -> str:
    """Return the size of what an export writes; empty where it is not known."""
    return BUNDLE_BYTES.text(values[BUNDLE_BYTES.name]) if BUNDLE_BYTES.name in values else ""


def _rows(run: Run) -> tuple[int, ...]:
    """Return the trials to show: those that the texts name, and of those worth a look the ones that no other beats."""
    values = {trial: run.record(trial).values for trial in run.shortlist or run.front}
    columns = [one for _, one in _columns(run, tuple(values)) if all(one.name in own for own in values.values())]
    # what is printed alike is equal: nobody sees what made one of them better
    first = {(one.name, one.text(own[one.name])): own[one.name] for one in columns for own in values.values()}
    printed = {
        trial: {one.name: first[one.name, one.text(own[one.name])] for one in columns} for trial, own in values.items()
    }
    unbeaten = front(printed, columns)
    kept = {trial: values[trial] for trial in values if trial == run.best or trial in unbeaten}
    told = named(run)
    rest = [one for one in shortlist(kept, columns, run.scored_samples, run.best, MOST_ROWS) if one not in told]
    return tuple(sorted((*told, *rest[: max(0, MOST_ROWS - len(told))])))


def _table(run: Run, members: Sequence[int], width: int) -> tuple[Table, str]:
    """Return the values of the given model, of what anybody would try first, and of trials; with which intervals.

    A row is one line: where the console is too narrow for that, intervals are left out.
    """
    columns, rows = _columns(run, members), list[list[str]]()
    for one in run.info.baselines or (run.info.untouched,):
        if one.values or one.name == UNTOUCHED:
            name = "as it came" if one.name == UNTOUCHED else one.name
            rows.append([name, "", *_cells(run, columns, one.values, run.info.samples_of(one))])
    for trial in members:
        record = run.record(trial)
        part = "" if record.plan is None else _PART.sub("", trained_part(record.plan))
        mark = "→ " if trial == run.best else ""
        rows.append([part, f"{mark}{trial}", *_cells(run, columns, record.values, None)])
    titles = ["what trains", "trial", *(title for title, _ in columns)]
    table = table_of(titles, rows, whole=True)
    if sum(2 + (column.min_width or 0) for column in table.columns) - 2 <= width:
        return table, run.info.targets.intervals
    return table_of(titles, [[cell.partition(" (")[0] for cell in row] for row in rows]), ""


def _cells(
    run: Run, columns: Sequence[tuple[str, Objective]], values: Mapping[str, float], samples: Mapping[str, int] | None
) -> Iterator[str]:
    for _, one in columns:
        yield run.text_of(one, values, samples)


def _below(run: Run, members: Sequence[int], intervals: str) -> Iterator[str]:
    """Yield what the table's figures are of, why the best trial is that, and whether it beats a baseline."""
    yield _legend(run, members, intervals)
    if share := of_share(run, members[0] if run.best is None else run.best):
        yield f"{share[0].upper()}{share[1:]}."
    if late := not_judged(run):
        yield late
    if run.best is not None:
        record = run.record(run.best)
        if record.plan is not None:
            yield f"→ Trial {run.best} {plain(record.plan)}."
        if why := reasons(run):
            yield why
        yield from baselines.verdicts(run, [run.best])


def _kinds(run: Run) -> str:
    """Say which kind of device costs are of, where they are measured, and which others there are."""
    kind, kinds = run.info.kind, run.info.kinds
    ran = [record for record in run.records if record.values and record.same_as is None]
    here = sum(record.kind == kind for record in ran)
    others = "; ".join(f"{name} ({one.device})" for name, one in kinds.items() if name != kind)
    measured = f"measured of {here} of {len(ran)} trials, translated of the others"
    return f"costs as on {kind} ({kinds[kind].device}), {measured}; --kind shows {others}"


def _legend(run: Run, members: Sequence[int], intervals: str) -> str:
    """Say on which samples the scores are, and what the costs are of."""
    scored, task = run.scored_samples, run.info.task
    counts = [f"{scored['local']:,} of your {task.noun}"]
    if scored.get("global"):
        counts.append(f"{scored['global']:,} of {known(run)}")
    ranges = f"; in brackets: {intervals}" if intervals else ""
    ranges += "; ±: a standard error" if any(one.domain for one in run.objectives) else ""
    how = f", cross-validated in {run.folds} folds" if run.folds else ", none of which was trained on"
    lines = [f"Scores are of {' and '.join(counts)}{how}{ranges}."]
    best = members[0] if run.best is None else run.best
    values = run.record(best).values
    costs = ["To train: on stored features"] if SECONDS.name in values else []
    if values.get("fill_seconds") and (once := run.info.spent.phases.get("features")):
        costs[0] += f", computed once for all trials in {format_seconds(once)}"
    if _size(values) and BUNDLE_BYTES not in dict(_columns(run, members)).values():
        costs.append(f"the exported file: {_size(values)}")
    if values.get(LATENCY):
        busy = ", while other programs were running" if BUSY in run.info.notes else ""
        costs.append(f"a prediction: {1000 * values[LATENCY]:.3g} ms here{busy}")
    lines.append(f"{'; '.join(costs)}.")
    if any((plan := run.record(trial).plan) is not None and plan.traits.solves for trial in members):
        lines.append(f"{SOLVED[4].upper()}{SOLVED[5:]}: a new last layer, computed in one step.")
    if any(one.name != UNTOUCHED and one.values for one in run.info.baselines):
        lines.append(f"Linear probe: the simplest way, a new last layer from your {task.noun} alone.")
    return " ".join(lines)


def _spent(run: Run) -> Iterator[str]:
    """Yield how many trials there were, and where the time went."""
    counts = {state: number for state, number in run.counts.items() if number or state == "done"}
    told = [f"{number} {STATES.get(state, state)}{_limits(run, state)}" for state, number in counts.items()]
    yield f"trials: {', '.join(told)}; ended: {run.info.ended}"
    sums: dict[str, float] = defaultdict(float)
    for name, seconds in run.info.spent.phases.items():
        sums[PHASES.get(name, "trying plans")] += seconds
    whole = max(run.info.spent.seconds, 1e-9)
    rest = sums.pop(REST, 0.0)
    large = [
        (name, seconds) for name, seconds in sorted(sums.items(), key=lambda one: -one[1]) if seconds >= SMALL * whole
    ]
    rest += sum(sums.values()) - sum(seconds for _, seconds in large)
    told = [f"{name} {format_seconds(seconds)}" for name, seconds in [*large, (REST, rest)] if seconds > 0]
    yield f"time: {format_seconds(run.info.spent.seconds)}{': ' if told else ''}{', '.join(told)}"


def _limits(run: Run, state: str) -> str:
    """Say which limits the trials of a state broke, and how often."""
    ended = [one for one in run.records if one.state == state and one.same_as is None]
    counts = Counter(binding(name) for one in ended for name, over in one.constraint.items() if over > 0)
    if not counts or state == "failed":
        return ""
    verb = "of which over" if state in SCORED else "over"
    if len(counts) == 1 and counts.total() == len(ended):
        return f" ({verb} {next(iter(counts))})"
    return f" ({verb} {', '.join(f'{name}: {number}' for name, number in counts.most_common())})"


def _next(run: Run, artifacts: str | Path | None) -> Iterator[str]:
    """Yield what to type next."""
    commands = list(next_commands(run, artifacts))
    if not commands:
        yield f"more: {shlex.join(['tuner', 'show', run.place, '--details'])}"
        return
    export, show = commands
    yield f"next: {export}"
    trains = SECONDS.name in run.record(run.front[0]).values
    told = PICKS if trains else {name: text.replace("to train", "to predict") for name, text in PICKS.items()}
    picks: dict[int, list[str]] = {}
    for name, trial in named_picks(run).items():
        if trial != run.best:
            picks.setdefault(trial, []).append(name)
    for trial, names in picks.items():
        why = "; ".join(told[name] if len(names) == 1 else f"{name}, {told[name]}" for name in names)
        beaten = baselines.not_better_than(run, run.record(trial))
        but = f"; not surely better than the {' or the '.join(beaten)}" if beaten else ""
        yield f"      with --pick {' or '.join(names)} it exports trial {trial}: {why}{but}"
    yield f"more: {show}; all of it: {shlex.join(['tuner', 'show', run.place, '--details'])}"
