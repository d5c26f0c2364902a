"""What the search is compared with: rows of a table, and whether a trial is better than what was fitted."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from tuner.metrics import paired_interval
from tuner.results.records.baseline import UNTOUCHED, Baseline, discordant
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES
from tuner.results.views.answer import known
from tuner.results.views.plausible import one_answers, warnings_of

LOCAL, GLOBAL = (objective.name for objective in OBJECTIVES[:2])


def rows(run: Run) -> list[tuple[str, list[str]]]:
    """Return the name of each baseline that has values, the given model always, and its values by `Run.columns`."""
    shown = [one for one in run.info.baselines if one.values or one.name == UNTOUCHED] or [run.info.untouched]
    return [(one.name, list(_cells(run, one))) for one in shown]


def notes(run: Run) -> list[str]:
    """Return what each baseline is, or why there is nothing of it, a line each."""
    given = f"the given model{run.info.targets.scored_on}", _lacking(run)
    lines = [f"{UNTOUCHED}: {'; '.join(filter(None, given))}"]
    lines += warnings_of(run.info)
    return lines + [f"{one.name}: {one.note}" for one in run.info.baselines if one.name != UNTOUCHED and one.note]


def not_better_than(run: Run, record: TrialRecord) -> list[str]:
    """Return the names of what was fitted that a trial is not certainly better than on the local samples.

    Where each sample is right or not, the paired 95 % interval of the difference decides; else the scores themselves.
    """
    return [one.name for one, (least, _) in _gains(run, record) if least <= 0]


def verdicts(run: Run, trials: Iterable[int]) -> Iterator[str]:
    """Yield which of some trials are worse than what was fitted, or not certainly better, as sentences."""
    trials = tuple(dict.fromkeys(trials))
    yield from one_answers(run, trials)
    failing: dict[str, list[str]] = {}
    for trial in trials:
        record = run.record(trial)
        for one, (least, most) in _gains(run, record):
            if most < 0:
                yield f"trial {trial} is worse than the {one.name}: {', '.join(_against(run, record, one))}"
            elif least <= 0:
                failing.setdefault(one.name, []).append(str(trial))
    scored = run.scored_samples.get("local", 0)
    across = run.objective(GLOBAL)
    forgets = {one.name: one.values[GLOBAL] for one in run.info.baselines if GLOBAL in one.values}
    for name, numbers in failing.items():
        verb, told = ("is", "trial") if len(numbers) == 1 else ("are", "trials")
        price = f"; of {known(run)} the {name} has {across.text(forgets[name])}" if name in forgets else ""
        line = f"{told} {', '.join(numbers)} {verb} not better than the {name} on your {run.info.task.noun}"
        yield f"{line}, as far as {scored:,} of them can show{price}"


def _against(run: Run, record: TrialRecord, baseline: Baseline) -> Iterator[str]:
    """Yield a trial's accuracies next to a baseline's: ``local accuracy 81.9 % against 91.2 %``."""
    for objective in map(run.objective, (LOCAL, GLOBAL)):
        own, theirs = (values.get(objective.name) for values in (record.values, baseline.values))
        if own is not None and theirs is not None:
            yield f"{objective.title} {objective.text(own)} against {objective.text(theirs)}"


def _gains(run: Run, record: TrialRecord) -> Iterator[tuple[Baseline, tuple[float, float]]]:
    """Yield what was fitted, and by how much a trial's local score is higher: its paired 95 % interval.

    Where samples are not right or wrong, both ends are the difference itself. What cannot be compared is left out.
    """
    for one in (one for one in run.info.baselines if one.name != UNTOUCHED):
        own, theirs, plan = record.values.get(LOCAL), one.values.get(LOCAL), record.plan
        samples = run.info.samples_of(one).get("local", 0)
        if own is None or theirs is None or plan is None or plan.scored.get("local") != samples:
            continue
        bounds = own - theirs, own - theirs
        if record.right and one.right:
            with suppress(ValueError):
                bounds = paired_interval(*discordant(record.right, one.right), samples)
        yield one, bounds


def _cells(run: Run, baseline: Baseline) -> Iterator[str]:
    samples = run.info.samples_of(baseline)
    for objective in run.columns:
        value = baseline.values.get(objective.name)
        lacks = objective.name == LOCAL and baseline.name == UNTOUCHED and _lacking(run)
        yield run.text(objective, value, samples) if value is not None else "no output" if lacks else "–"


def _lacking(run: Run) -> str:
    """Say of which of the user's classes the given model has no output; nothing where it has all."""
    note, classes = run.info.untouched.note, run.info.classes
    return f"{note}: {classes.local_names}" if note and classes.are_new else note
