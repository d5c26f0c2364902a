"""The answer of a run in one sentence."""

from collections.abc import Callable

from tuner.plan.text import trained_part
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES
from tuner.results.views.pick import nothing_feasible
from tuner.targets.base import ACCURACY, ERROR
from tuner.units import format_seconds

#: Seconds from which minutes say more.
MINUTES = 100
LOCAL, GLOBAL = (objective.name for objective in OBJECTIVES[:2])


def answer(run: Run) -> str:
    """Return what the run found, in one sentence: what the best trial trains, what it gains, and what it costs.

    Accuracies are on validation samples; their intervals are in the table.
    """
    if not run.front:
        return f"No trial obeys every limit: {nothing_feasible(run)}."
    record = run.record(run.front[0] if run.best is None else run.best)
    if record.plan is None:
        return f"Trial {record.trial} is the best one of the front, but its plan is not in the record."
    before, after = run.info.untouched.values.get(LOCAL), record.values.get(LOCAL)
    if before is not None and after is not None and after <= before and run.info.task.labelled:
        best, local = max(run.record(trial).values[LOCAL] for trial in run.front), run.objective(LOCAL)
        if best <= before:
            return (
                f"Nothing that was tried is better on {_local_samples(run)} than the untouched model: it reaches "
                f"{local.text(before)}, the best trial {local.text(best)}."
            )
    return f"{_subject(run, record, record.plan)} takes {_object(run, record)}."


def _subject(run: Run, record: TrialRecord, plan: TrialPlan) -> str:
    """Say what is trained or solved for, on which samples, for how long."""
    noun = run.info.task.noun
    samples = f"{plan.local_samples:,} of the user's {noun}"
    if plan.global_samples:
        samples += f" and {plan.global_samples:,} old one{'' if plan.global_samples == 1 else 's'}"
    seconds = record.values.get("train_seconds")
    verb, preposition = ("Solving for", "in") if plan.traits.solves else ("Training", "for")
    lasting = "" if seconds is None else f" {preposition} {_seconds(seconds)}"
    return f"{verb} {trained_part(plan)} on {samples}{lasting}"


def _object(run: Run, record: TrialRecord) -> str:
    """Say from where to where each accuracy goes, and the cost of a prediction where exits change it."""
    parts = [
        f"{samples} {_change(run.objective(name).text, run.info.untouched.values.get(name), record.values[name])}"
        f"{_error(run, record, name)}"
        for name, samples in ((LOCAL, _local(run)), (GLOBAL, _global(run)))
        if name in record.values
    ]
    flops = next((objective for objective in run.objectives if objective.name == "mean_flops"), None)
    whole = float(sum(block.flops for block in run.info.model.blocks))
    if flops is not None and flops.text(record.values.get(flops.name, whole)) != flops.text(whole):
        parts.append(f"a prediction {_change(flops.text, whole, record.values[flops.name])}")
    return ", ".join(parts[:-1]) + (" and " if parts[:-1] else "") + "".join(parts[-1:])


def _change(text: Callable[[float], str], before: float | None, after: float) -> str:
    return f"to {text(after)}" if before is None else f"from {text(before)} to {text(after)}"


def _error(run: Run, record: TrialRecord, name: str) -> str:
    """Say from where to where the mean absolute error goes; nothing of tasks without one."""
    error = name.replace(ACCURACY, ERROR)
    if error not in record.values:
        return ""
    change = _change("{:,.3g}".format, run.info.untouched.values.get(error), record.values[error])
    return f" (mean absolute error {change})"


def _local(run: Run) -> str:
    """Say whose accuracy the local one is."""
    classes, of = run.info.classes, _local_samples(run)
    if not run.info.task.labelled:
        return f"agreement with the given model on {of}"
    targets = run.info.targets
    return of if classes.are_new and targets.one_class else f"{targets.score_noun} on {of}"


def _local_samples(run: Run) -> str:
    classes, noun = run.info.classes, run.info.task.noun
    return classes.local_names if classes.are_new and not classes.several else f"the user's {noun}"


def _global(run: Run) -> str:
    classes = run.info.classes
    return classes.known_names if classes.are_new and not classes.several else "on the original data"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value < MINUTES else format_seconds(value)
