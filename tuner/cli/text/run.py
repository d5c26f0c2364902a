"""Runs and their trials as text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tuner.cli.text.screen import print_screen, print_text, table_of
from tuner.distribution import CANDIDATES, offered
from tuner.metrics import percent
from tuner.plan.text import describe
from tuner.results.records.trial import TrialRecord, binding
from tuner.results.run import Run
from tuner.results.scores.cuts import Cut, cuts_of
from tuner.results.scores.objectives import LEFT_OUT_ACCURACY, Objective, title_of
from tuner.results.scores.strategies import FRONT_LOST, LOST, Tried, has_area, strategies_of
from tuner.results.views import baselines
from tuner.results.views.estimates import EstimateErrors, estimate_errors
from tuner.results.views.pick import named_picks
from tuner.results.views.reasons import left_out, members_to_show
from tuner.targets.base import LEFT_OUT, TOP
from tuner.units import format_bytes, format_seconds

#: Mean absolute errors, in the unit of its targets.
ERRORS = ("local_mae", "global_mae", "local_loo_mae")
#: Errors of fewer estimates say nothing of the others.
FEW_ESTIMATES = 3
ESTIMATES = "estimates of costs, made before each trial, were off"
#: What is estimated, for people.
COSTS = {"peak_bytes": "memory", "train_seconds": "time to train"}
#: What the seconds of tables are.
WALL = (
    "seconds: all that these trials took, computing features and scoring included. Train seconds: training on stored "
    "features; a trial that continues another has those of the other, too"
)


def print_run(
    run: Run, console: Console, *, whole: bool = False, details: bool = False, artifacts: str | Path | None = None
) -> None:
    """Print a run: the answer first, on one screen; with `details` also everything else that was found.

    Of the front, members that are worth a look are printed, or the `whole` of it.
    """
    print_screen(run, console, whole=whole, artifacts=artifacts)
    if (point := offered(CANDIDATES).get("lines")) is not None:
        for part in point.load()(run):
            print_text(console, part) if isinstance(part, str) else console.print(part)
    if details:
        console.print()
        _print_details(run, console, run.front if whole else members_to_show(run))


def _print_details(run: Run, console: Console, members: Sequence[int]) -> None:
    """Print all values and plans in the field's terms, what each cut and strategy came to, and what was spent."""
    info = run.info
    print_text(console, f"{info.task_name} · space {info.space_name} · seed {info.config.seed} · {info.ended}")
    console.print(_table(run, members))
    print_text(console, *baselines.notes(run), *([_scored_on(run)] if run.front else []))
    for trial in members:
        plan = run.record(trial).plan
        sentence = describe(plan) if plan else ""
        print_text(console, f"{_mark(run, trial)}{trial}: {sentence}")
    print_text(console, left_out(run, members), *_picks(run))
    for part in _tried(run):
        print_text(console, part) if isinstance(part, str) else console.print(part)
    if info.spent.phases:
        spent = sorted(info.spent.phases.items(), key=lambda phase: -phase[1])
        print_text(console, "phases: " + ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in spent))
    errors = {name: one for name, one in estimate_errors(run.records).items() if one.trials >= FEW_ESTIMATES}
    if errors:
        print_text(console, f"{ESTIMATES}: {'; '.join(map(_errors, errors, errors.values()))}")
    of_prior = f"{run.of_prior} · " if run.of_prior else ""
    print_text(console, f"{of_prior}the store now holds {format_bytes(info.spent.storage_bytes)}")


def _picks(run: Run) -> Iterator[str]:
    """Yield the trial of each named pick, and which of them are not better than what anybody would try first."""
    if run.best is not None:
        named = named_picks(run)
        yield f"picks: {', '.join(f'--pick {name} is trial {trial}' for name, trial in named.items())}"
        yield from baselines.verdicts(run, named.values())


def _tried(run: Run) -> Iterator[Table | str]:
    """Yield what each cut and each strategy came to, where there are several."""
    cuts, strategies = cuts_of(run.records), strategies_of(run.info.strategies, run.records)
    if len(cuts) > 1:
        yield _cuts(run, cuts)
    if len(strategies) > 1:
        yield _strategies(run, strategies)
        if has_area(run.records):
            yield FRONT_LOST
    if len(cuts) > 1 or len(strategies) > 1:
        yield WALL
        yield from (f"{one.name} has no scored trial: {one.reason}" for one in strategies if one.reason)


def _cuts(run: Run, cuts: Sequence[Cut]) -> Table:
    """Return what each number of blocks that train came to."""
    local, everywhere = run.objective("local_accuracy"), run.objective("global_accuracy")
    titles, rows = ["what trains", "tried", f"best {local.title}", f"its {everywhere.title}", "seconds"], []
    for cut in cuts:
        best = "–" if cut.local_accuracy is None else f"{local.text(cut.local_accuracy)} (trial {cut.trial})"
        kept = "–" if cut.global_accuracy is None else everywhere.text(cut.global_accuracy)
        rows.append([cut.name, str(cut.tried), best, kept, f"{cut.seconds:,.1f}"])
    return table_of(titles, rows)


def _strategies(run: Run, strategies: Sequence[Tried]) -> Table:
    """Return what each strategy that is not in all plans came to."""
    local, losses, rows = run.objective("local_accuracy"), has_area(run.records), []
    titles = ["strategy", "tried", f"best {local.title}", "seconds", *([LOST] if losses else [])]
    for one in strategies:
        best = "–" if one.best is None else f"{local.text(one.best)} (trial {one.trial})"
        lost = [f"{100 * one.adds:.1f} points"] if losses else []
        rows.append([one.name, str(one.tried), best, f"{one.seconds:,.1f}", *lost])
    return table_of(titles, rows)


def _errors(name: str, errors: EstimateErrors) -> str:
    """Say how far the estimates of a cost were off."""
    found = (errors.median, errors.nine_in_ten, errors.plain_median)
    median, most, plain = (None if value is None else f"{100 * value:.0f} %" for value in found)
    learned = "" if plain in {None, median} else f" ({plain} without what earlier trials of the run had taught)"
    return f"{COSTS.get(name, name)} by {median} as a rule{learned}, by at most {most} in nine of ten trials"


def _scored_on(run: Run) -> str:
    """Say how many samples the front is scored on, and of how many."""
    scored, task = run.scored_samples, run.info.task
    interval = f"; ({run.info.targets.intervals})" if run.info.targets.intervals else ""
    if run.left_out_samples:
        interval = f"; solved heads also on all {run.left_out_samples:,} local {task.noun}, by leave-one-out{interval}"
    if run.folds:
        local = f"{scored['local']:,} local {task.noun} ({task.local_train:,} in {run.folds} folds, and local.val)"
        old = f" and {scored['global']:,} global validation {task.noun}" if scored["global"] else ""
        return f"scored on {local}{old}{interval}"
    of = {"local": task.local_val, "global": task.global_val}
    counts = [
        f"{scored[domain]:,} {domain}" + (f" of {count:,}" if count != scored[domain] else "")
        for domain, count in of.items()
        if count
    ]
    return f"scored on {' and '.join(counts)} validation {task.noun}{interval}"


def _table(run: Run, members: Sequence[int]) -> Table:
    """Return the values of what the search is compared with, and of members of the front."""
    measured = {one.name: one.values for one in run.info.baselines}
    errors = [name for name in ERRORS if any(name in run.record(trial).values for trial in members)]
    titles = ["trial", *(one.title for one in run.columns)]
    titles += [title_of(name, run.info.targets).replace("absolute", "abs.") for name in errors]
    rows = []
    for baseline, texts in baselines.rows(run):
        rows.append([baseline, *texts, *(_error(measured.get(baseline, {}), name) for name in errors)])
    for trial in members:
        values = run.record(trial).values
        cells = (run.text_of(one, values) for one in run.columns)
        rows.append([f"{_mark(run, trial)}{trial}", *cells, *(_error(values, name) for name in errors)])
    return table_of(titles, rows)


def _error(values: Mapping[str, float], name: str) -> str:
    return f"{values[name]:,.3g}" if name in values else "–"


def _mark(run: Run, trial: int) -> str:
    return "→ " if trial == run.best else ""


def format_trial(run: Run, record: TrialRecord) -> str:
    """Return everything that was recorded of a trial, for people; tracebacks last."""
    units = {one.name: one for one in (*run.objectives, LEFT_OUT_ACCURACY.of(run.info.targets))}
    rung = f" on rung {record.rung}" if record.rung > 0 else ""
    lines = [f"trial {record.trial}: {record.state}{rung}, {format_seconds(record.spent_seconds)}"]
    lines += [describe(record.plan)] if record.plan else []
    lines += [f"the same plan as trial {record.same_as}, whose values these are"] if record.same_as is not None else []
    lines += [f"plan {record.prior} of the prior"] if record.prior is not None else []
    lines += [f"reason: {record.reason}"] if record.reason else []
    scored = {**record.plan.scored, LEFT_OUT: record.plan.local_used} if record.plan else {}
    targets = run.info.targets
    named = {name: name if targets.unit == "%" else title_of(name, targets) for name in record.values}
    lines += [f"{named[name]}: {_text(units, name, value, scored)}" for name, value in record.values.items()]
    if record.estimate is not None:
        estimate = (f"{name} {value:,.4g}" for name, value in asdict(record.estimate).items())
        lines.append(f"estimate: {', '.join(estimate)}")
    lines += [f"limit {name}: over by {value:.3g}" for name, value in record.constraint.items() if value > 0]
    lines += [f"knob {name}: {value}" for name, value in record.knobs.items()]
    return "\n".join((*lines, *record.notes)).rstrip()


def _text(units: dict[str, Objective], name: str, value: float, scored: dict[str, int]) -> str:
    if TOP in name:
        return percent(value, scored[name.partition(TOP)[0]])
    return units[name].text(value, scored) if name in units else f"{value:,.4g}"


def format_trials(run: Run) -> str:
    """Return a line for each trial, and below it why it was refused or ended early."""
    heads = ["trial", "state", "rung", *(objective.title for objective in run.objectives)]
    rows = [_row(run, record) for record in run.records]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = [_line(heads, widths)]
    for record, row in zip(run.records, rows, strict=True):
        lines.append(_line(row, widths))
        why = _why(record)
        lines += [f"    {why}"] if why else []
    limits = Counter(name for record in run.records for name, over in record.constraint.items() if over > 0)
    if limits:
        refused = ", ".join(f"{number} because of {binding(name)}" for name, number in limits.most_common())
        lines.append(f"do not count: {refused}")
    lines.append(f"trials: {', '.join(f'{number} {state}' for state, number in run.counts.items())}")
    return "\n".join(lines)


def _row(run: Run, record: TrialRecord) -> list[str]:
    mark = "→ " if record.trial == run.best else "* " if record.trial in run.front else ""
    values = [one.text(record.values[one.name]) if one.name in record.values else "–" for one in run.objectives]
    return [f"{mark}{record.trial}", record.state, str(record.rung), *values]


def _line(cells: list[str], widths: list[int]) -> str:
    return "  ".join(
        cell.ljust(width) if column == 1 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def _why(record: TrialRecord) -> str:
    if record.same_as is not None:
        return f"the same plan as trial {record.same_as}, whose values these are"
    of_prior = "" if record.prior is None else f"plan {record.prior} of the prior"
    return "; ".join(filter(None, (of_prior, " ".join(record.reason.split()))))
