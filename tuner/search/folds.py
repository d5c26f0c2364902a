"""Folds: a plan is trained once on all samples, and once more without each fold, which then judges it.

The weights of the training on all samples are kept, which the local validation samples judge: so every local sample
judges once, by weights that never saw it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from tuner.backends.base import Trial
from tuner.errors import UsageError
from tuner.machine.awake import CLOCK
from tuner.plan.trial import TrialPlan
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import Outcome
from tuner.results.scores.objectives import STANDARD_ERROR, objective_of
from tuner.search.processes.guard import JobResult, Progress
from tuner.search.processes.remote import RemoteSession
from tuner.search.setting import Setting
from tuner.search.trials.seeds import seeded
from tuner.targets.base import ERROR, LEFT_OUT, TOP
from tuner.task.info import TaskOutline

LEAST_FOLDS = 2
#: Weights that were trained without a fold: they are scored, and removed.
FOLD_WEIGHTS = "fold.safetensors"
#: Values that folds add to; all others are those of the training on all samples.
LOSS = "local_loss"
JUDGED = ("local_accuracy", "final_local_accuracy", LOSS)
#: Name of the peak of memory.
PEAK = "peak_bytes"


def check_folds(folds: int | None) -> int:
    """Return a number of folds, 0 where none is given; UsageError where there is no such division."""
    if folds is not None and folds < LEAST_FOLDS:
        raise UsageError(
            f"--folds must be a whole number from {LEAST_FOLDS}, got {folds}: leave it out to score on local.val alone"
        )
    return folds or 0


def check_possible_folds(folds: int, task: TaskOutline) -> None:
    """Require that a task's samples can be divided into folds.

    Raises:
        UsageError: A class has fewer samples, or samples are windows of one recording, which are too much alike.
    """
    if not folds:
        return
    if not task.most_folds:
        raise UsageError(
            f"--folds must have two recordings of each class or more, got {task.info.noun} of a class that "
            "were all cut from one recording: add a recording of it, or leave --folds out"
        )
    if folds > task.most_folds:
        of = f" of class {task.smallest_class!r}" if task.smallest_class else ""
        way_out = "leave it out" if task.most_folds < LEAST_FOLDS else "give fewer folds"
        raise UsageError(
            f"--folds must be at most {task.most_folds}, as many as local.train has {task.fold_noun}{of}, got "
            f"{folds}: {way_out}, or add {task.info.noun}{of}"
        )


def with_folds(plan: TrialPlan, folds: int) -> TrialPlan:
    """Return a plan that so many folds judge; 0 for none."""
    return replace(plan, data=replace(plan.data, folds=folds))


def train(
    setting: Setting, session: RemoteSession, trial: Trial, progress: Progress, slower: float = 1.0
) -> JobResult[Outcome]:
    """Carry a plan out: all its trainings, one after the other, as one result; seeds follow from the study's.

    Return what the training on all samples measured, its accuracies joined with those of the folds. The first training
    that has no result ends the trial, as does the end of the time: fewer folds would judge other samples.
    """
    from tuner.search.admission import trial_limits  # it needs scipy, which checking a number of folds does not

    plan, results = trial.plan, list[JobResult[Outcome]]()
    scores = tuple(one.name for one in setting.objectives if one.domain == "local")
    for one in plan.trainings:
        job = replace(trial, plan=one, seed=seeded(setting.seed, one.line()))
        if one.data.fold:
            job = replace(job, weights=trial.weights.with_name(FOLD_WEIGHTS), objectives=scores)
        limits = trial_limits(setting, one, slower)
        try:
            result = session.try_train(job, limits, _naming_fold(progress, one))
        finally:
            if one.data.fold:
                job.weights.unlink(missing_ok=True)
        if result.value is None or not plan.data.folds:
            return result
        if result.value.stopped and limits.warn_at is not None and CLOCK.now() >= limits.warn_at:
            return JobResult("deadline", seconds=result.seconds, most_bytes=result.most_bytes)
        results.append(result)
    outcomes = [result.value for result in results if result.value is not None]
    seconds, most_bytes = sum(result.seconds for result in results), max(result.most_bytes for result in results)
    return replace(results[0], value=joined(plan, outcomes, scores), seconds=seconds, most_bytes=most_bytes)


def joined(plan: TrialPlan, outcomes: Sequence[Outcome], scores: Sequence[str] = ()) -> Outcome:
    """Return what the trainings of a plan, in their order, measured together.

    A local accuracy is the share of all judging samples that were right: the mean over the trainings, weighted by the
    number of samples that each is scored on. So is the local loss, a local error, R², and what `scores` names, each on
    its own fold; their standard errors, of the first training alone, are left out. With folds there is no score by
    leave-one-out: every plan is scored on all local samples.
    """
    first, counts = outcomes[0], [one.local_scored for one in plan.trainings]
    errors = {name + STANDARD_ERROR for name in scores}
    values = {name: one for name, one in first.values.items() if not name.startswith(LEFT_OUT) and name not in errors}
    for name in values:
        if name in {*JUDGED, *scores} or (name.startswith("local_") and (TOP in name or name.endswith(ERROR))):
            shares = [outcome.values.get(name, math.nan) for outcome in outcomes]
            right = math.fsum(count * share for count, share in zip(counts, shares, strict=True))
            values[name] = right / sum(counts)
    if PEAK in values:  # a training on all samples that was continued from its end has taken nothing
        values[PEAK] = max(outcome.values.get(PEAK, 0.0) for outcome in outcomes)
    if not math.isfinite(values.get(LOSS, 0.0)):  # a fold has none
        del values[LOSS]
    local = [outcome.classes["local"] for outcome in outcomes if "local" in outcome.classes]
    classes = {**first.classes, "local": ClassCounts.joined(local)} if local else first.classes
    score = objective_of(JUDGED[0], (), plan.task.targets)
    whole, *folds = (score.text(outcome.values.get(score.name, math.nan)) for outcome in outcomes)
    note = f"{score.title} of the weights that are kept, on local.val: {whole}; by fold of local.train: "
    # why a fold has no value of its own objectives, which a function may have refused to give
    lacking = [at for at, outcome in enumerate(outcomes) if at and not {*scores} & {*first.values} <= {*outcome.values}]
    notes = [note + ", ".join(folds), *(f"fold {at}: {text}" for at in lacking for text in outcomes[at].notes)]
    flags = tuple(text for outcome in outcomes for text in outcome.right)
    return replace(first, values=values, classes=classes, right=flags, notes=(*first.notes, *notes))


def _naming_fold(progress: Progress, plan: TrialPlan) -> Progress:
    """Return a function that adds to progress which fold is left out."""
    if not plan.data.fold:
        return progress
    where = f", fold {plan.data.fold} of {plan.data.folds}"
    return lambda content: progress({**content, "where": where})
