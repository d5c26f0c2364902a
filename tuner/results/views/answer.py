"""The answer of a run: what share is right now, next to what comes free, and what is kept of the known."""

import math
from collections.abc import Iterator

from tuner.results.folder import read_exports
from tuner.results.records.baseline import UNTOUCHED, Baseline
from tuner.results.records.trial import TrialRecord, eligible
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES, Objective
from tuner.results.views.pick import nothing_feasible
from tuner.targets.base import ACCURACY, ERROR

LOCAL, GLOBAL = (objective.name for objective in OBJECTIVES[:2])
TEST = f"test{ACCURACY}"
SHARES = {1 / 2: "half", 1 / 4: "a quarter", 1 / 8: "an eighth"}


def answer(run: Run) -> str:
    """Return what the run found, in a few words: the best trial's scores with their intervals, and what they were.

    They are on validation samples.
    """
    if not run.front:
        return f"No trial obeys every limit: {nothing_feasible(run)}."
    record = run.record(run.front[0] if run.best is None else run.best)
    before, after = run.info.untouched.values.get(LOCAL), record.values.get(LOCAL)
    if before is not None and after is not None and after <= before and run.info.task.labelled:
        best = max(run.record(trial).values[LOCAL] for trial in run.front)
        if best <= before:
            return (
                f"Nothing that was tried is better than the model as it came: {yours(run)} "
                f"{_scored(run, LOCAL, before)}, with the best trial {_scored(run, LOCAL, best)}."
            )
    return " ".join(f"{part}." for part in (*_local(run, record), *_global(run, record), *_costs(run, record)))


def exported(run: Run) -> Iterator[str]:
    """Yield a line for each of the last three bundles that were exported, with its score on test samples."""
    targets, noun = run.info.targets, run.info.task.noun
    for one in read_exports(run.folder)[-3:]:
        told = f"exported as {one.bundle} (trial {one.trial}{', trained again on all samples' if one.refit else ''})"
        if TEST in one.scores and one.samples:
            told += f": {targets.score_before}{targets.text(one.scores[TEST], one.samples)}{targets.score_after}"
            told += f", of {one.samples:,} test {noun}"
        yield told


def yours(run: Run) -> str:
    """Return the name of what the local score is of: ``"your classes 7–9"``, or ``"your photos"``."""
    classes = run.info.classes
    if not are_own(run):
        return f"your {run.info.task.noun}"
    if names := classes.names(classes.local):
        return f"your class{'' if len(classes.local) == 1 else 'es'} {names}"
    return f"your {len(classes.local)} classes"


def of_share(run: Run, trial: int) -> str:
    """Say on which share of the samples a trial was trained and judged; empty where on all."""
    plan = run.record(trial).plan
    if plan is None or plan.data.share == 1:
        return ""
    task, share = plan.task, plan.data.share
    part = SHARES.get(share, f"1/{1 / share:.0f}")
    return (
        f"trial {trial} was trained on {part} of your {task.noun} ({plan.local_samples:,} of {task.local_train:,}) and "
        f"judged on {plan.local_scored:,} of {task.local_val:,}, as the run ended before it was trained on all "
        "(--resume continues it)"
    )


def not_judged(run: Run) -> str:
    """Say how many trials came after the last cross-validation, which alone is compared; empty where none did."""
    last = max((one.trial for one in run.records if one.rung < 0), default=math.inf)
    later = sum(one.rung == 0 and one.same_as is None and eligible(one) for one in run.records if one.trial > last)
    if not later or not run.folds:
        return ""
    which = "1 trial was" if later == 1 else f"{later:,} trials were"
    return f"{which} not cross-validated for lack of time, so not compared: --resume with --time goes on with them."


def known(run: Run) -> str:
    """Return the name of what the global score is of."""
    return "the known classes" if are_own(run) else "the original data"


def are_own(run: Run) -> bool:
    """Return whether the user's samples are of classes that the model did not know, each of one."""
    return run.info.classes.are_new and bool(run.info.targets.counted(run.info.classes.labels))


def _local(run: Run, record: TrialRecord) -> Iterator[str]:
    """Yield the local score, next to what anybody would try first and the given model."""
    if LOCAL not in record.values:
        return
    given = run.info.untouched
    fitted = [one for one in run.info.baselines if one.name != UNTOUCHED and LOCAL in one.values]
    others = [f"a {one.name} {_plain(run, LOCAL, one.values[LOCAL])}{_fewer(run, one)}" for one in fitted]
    if not run.info.task.labelled:
        others = []  # the model as it came agrees with itself
    elif are_own(run) and not given.values.get(LOCAL):
        others.append("the model itself knew none of them")
    elif LOCAL in given.values:
        others.append(f"the model as it came {_plain(run, LOCAL, given.values[LOCAL])}")
    subject, score = yours(run), _scored(run, LOCAL, record.values[LOCAL])
    yield "; ".join((f"{subject[0].upper()}{subject[1:]}: {score}{_error(run, record, LOCAL)}", *others))


def _global(run: Run, record: TrialRecord) -> Iterator[str]:
    """Yield from where to where the score on what the model knew goes."""
    if GLOBAL not in record.values:
        return
    before, subject = run.info.untouched.values.get(GLOBAL), known(run).removeprefix("the ")
    if record.plan is not None and record.plan.data.share < run.info.untouched.share:
        before = None  # of more samples: it is not comparable
    score = run.text(run.objective(GLOBAL), record.values[GLOBAL])
    change = "" if before is None else f"{_plain(run, GLOBAL, before).removesuffix(' %')} → "
    yield f"{subject[0].upper()}{subject[1:]}: {change}{score}{_error(run, record, GLOBAL)}"


def _costs(run: Run, record: TrialRecord) -> Iterator[str]:
    """Yield the cost of a prediction where exits change it."""
    flops = next((objective for objective in run.objectives if objective.name == "mean_flops"), None)
    whole = float(sum(block.flops for block in run.info.model.blocks))
    if flops is not None and flops.text(record.values.get(flops.name, whole)) != flops.text(whole):
        yield f"A prediction: {flops.text(whole)} → {flops.text(record.values[flops.name])}"


def _scored(run: Run, name: str, value: float) -> str:
    """Return a local score with its interval, as what it is: ``"85.9 % right (82–89)"``, ``"macro AUC 0.991"``."""
    text, targets = run.text(run.objective(name), value), run.info.targets
    if not run.info.task.labelled:
        return f"as the given model in {text}"
    return targets.score_before + text.replace(" %", f" %{targets.score_after}", 1)


def _plain(run: Run, name: str, value: float) -> str:
    """Return a score without its interval."""
    objective: Objective = run.objective(name)
    return objective.text(value)


def _fewer(run: Run, baseline: Baseline) -> str:
    """Say on how many samples a baseline was scored where the trials of the front have others."""
    own, front = (samples.get("local", 0) for samples in (run.info.samples_of(baseline), run.scored_samples))
    return "" if own == front else f" on {own:,} of them"


def _error(run: Run, record: TrialRecord, name: str) -> str:
    """Say from where to where the mean absolute error goes; nothing of tasks without one."""
    error = name.replace(ACCURACY, ERROR)
    if error not in record.values:
        return ""
    before, after = run.info.untouched.values.get(error), f"{record.values[error]:,.3g}"
    return f" (mean absolute error {after if before is None else f'{before:,.3g} → {after}'})"
