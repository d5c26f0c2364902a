"""Why the best trial is the best one, what it gives up, and what a cheaper one would save."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import LEFT_OUT_ACCURACY, OBJECTIVES, SCORES
from tuner.results.scores.pareto import FORGETTING, are_level, decided_by_known, is_worth_naming, useful
from tuner.results.scores.picking import training_flops
from tuner.results.views.answer import known, yours
from tuner.results.views.pick import named_picks

LOCAL, GLOBAL, SECONDS, _ = OBJECTIVES
#: A trial that saves less of the seconds is not called cheaper.
SAVED = 0.1
#: What decides between trials whose accuracies the validation samples cannot tell apart.
LOSS, WORK = "loss", "work"
#: A sentence, and the trial that it is about.
Told = tuple[str, int]


def reasons(run: Run) -> str:
    """Return in a few sentences why the best trial was picked, next to the others of the front, shown or not.

    Nothing where there is no best one, or no local score.
    """
    return " ".join(sentence for sentence, _ in _told(run))


def members_to_show(run: Run) -> tuple[int, ...]:
    """Return the trials of the front that a table has rows for: those worth a look, and what the texts name besides."""
    worth = run.shortlist or run.front
    return *worth, *(trial for trial in named(run) if trial not in worth)


def named(run: Run) -> tuple[int, ...]:
    """Return the trials of the front that the texts about the pick name, and those of the named picks."""
    trials = {*(trial for _, trial in _told(run)), *named_picks(run).values()}
    return tuple(trial for trial in run.front if trial in trials)


def _told(run: Run) -> Iterator[Told]:
    if run.best is None or LOCAL.name not in run.record(run.best).values:
        return
    best = run.record(run.best)
    worth, front = ([run.record(trial) for trial in own if trial != run.best] for own in (run.shortlist, run.front))
    yield _rule(run, best), best.trial
    yield from _better(run, best)
    yield from _given_up(run, best, worth)
    yield from _cheaper(run, best, front)


def _rule(run: Run, best: TrialRecord) -> str:
    """Say by which rule the trial was picked."""
    if _known_decide(run):
        alike = f"those with at most one validation error on {yours(run)}"
        return f"Trial {best.trial} is picked: of {alike}, it has the highest accuracy on {known(run)}."
    picked = f"Trial {best.trial} is picked: best on {yours(run)}"
    if not _measured(run, best):
        return f"{picked}."
    least = _points(run, GLOBAL.name, _allowed(run))
    if _forgets(run, best):
        rule = f"the largest sum of both scores, as all lose more than {least} on {known(run)}"
        return f"Trial {best.trial} is picked: {rule}."
    return f"{picked} of those that lose at most {least} on {known(run)}."


def _better(run: Run, best: TrialRecord) -> Iterator[Told]:
    """Say why a trial of the front that is better on the user's samples was not picked."""
    own = best.values[LOCAL.name]
    better = [run.record(trial) for trial in run.front if run.record(trial).values.get(LOCAL.name, 0.0) > own]
    forgets = [one for one in better if _forgets(run, one)]
    alike = [one for one in better if one not in forgets]
    if forgets:
        one = max(forgets, key=lambda record: record.values[LOCAL.name])
        lost = run.info.untouched.values[GLOBAL.name] - one.values[GLOBAL.name]
        yield f"Trial {one.trial} has {_text(run, one)} there, but loses {_points(run, GLOBAL.name, lost)}.", one.trial
    if alike:
        one = max(alike, key=lambda record: record.values[LOCAL.name])
        yield f"Trial {one.trial} has {_text(run, one)}, {_but(run, one, best)}.", one.trial
        return
    equal = [run.record(trial) for trial in run.front if run.record(trial).values.get(LOCAL.name) == own]
    rest = [one for one in equal if one.trial != best.trial and not _forgets(run, one)]
    if rest and not _known_decide(run) and all(whys := [_decides(run, one, best) for one in rest]):
        why = "it has the lowest validation loss"
        if WORK in whys:
            why = "it trained the most; their validation losses cannot be told apart"
        yield f"Of the {len(rest) + 1} with {_text(run, best)}, {why}.", best.trial


def _but(run: Run, one: TrialRecord, best: TrialRecord) -> str:
    """Say why a trial with a higher accuracy on the validation samples, which forgets no more, is not the best."""
    samples, noun = run.scored_samples.get("local", 0), run.info.task.noun
    left, other = (record.values.get(LEFT_OUT_ACCURACY.name) for record in (best, one))
    if left is not None and other is not None and left > other:
        return f"but {LEFT_OUT_ACCURACY.text(other)} by leave-one-out instead of {LEFT_OUT_ACCURACY.text(left)}"
    if left is None and other is not None and other < one.values[LOCAL.name]:
        return f"but {LEFT_OUT_ACCURACY.text(other)} of all your {noun}"
    if _known_decide(run) and (less := best.values[GLOBAL.name] - one.values[GLOBAL.name]) > 0:
        return f"but {_points(run, GLOBAL.name, less)} less on {known(run)}"
    decides = {LOSS: ", and a higher validation loss, which decides then",
               WORK: "; nor can they tell the validation losses apart, and it trained less"}  # fmt: skip
    return f"which {samples:,} {noun} cannot tell from {_text(run, best)}{decides.get(_decides(run, one, best), '')}"


def _known_decide(run: Run) -> bool:
    """Return whether the best trial is it for what it keeps, as the user's samples are all right."""
    front = {trial: values for trial, values in comparable(run.records).items() if trial in run.front}
    kept = {trial: values for trial, values in front.items() if not _forgets(run, run.record(trial))}
    return run.best == decided_by_known(kept, max(1, run.scored_samples.get("local", 1)))


def _decides(run: Run, one: TrialRecord, best: TrialRecord) -> str:
    """Return what makes one of two trials the best: its lower validation loss, more training, or empty for neither.

    The loss of a solved head is not compared.
    """
    if any(LEFT_OUT_ACCURACY.name in record.values for record in (one, best)):
        return ""
    other, own = (record.values.get("local_loss", 0.0) for record in (one, best))
    less, more = training_flops(one), training_flops(best)
    if less != more and are_level(max(other, own), min(other, own), run.scored_samples.get("local", 1)):
        return WORK if less < more else ""
    return LOSS if other > own else ""


def _given_up(run: Run, best: TrialRecord, others: list[TrialRecord]) -> Iterator[Told]:
    """Say which trial keeps more of what the model knew, and what that one gives up."""
    if not _measured(run, best) or not others:
        return
    safest = max(others, key=lambda one: one.values.get(GLOBAL.name, 0.0))
    more = safest.values.get(GLOBAL.name, 0.0) - best.values[GLOBAL.name]
    less = best.values[LOCAL.name] - safest.values.get(LOCAL.name, 0.0)
    if more > 0 and less > 0:
        kept, lost = _points(run, GLOBAL.name, more), _points(run, LOCAL.name, less)
        yield f"Trial {safest.trial} keeps {kept} more of these, for {lost} less on yours.", safest.trial


def _cheaper(run: Run, best: TrialRecord, others: list[TrialRecord]) -> Iterator[Told]:
    """Say what the most accurate trial that takes less time would save, and what it would cost."""
    own = best.values.get(SECONDS.name)
    if own is None or not others:
        return
    kept = [one for one in others if _forgets(run, best) or not _forgets(run, one)]
    cheaper = [one for one in kept if one.values.get(SECONDS.name, own) < (1 - SAVED) * own]
    if not cheaper:
        which = "" if len(kept) == len(others) else " that keeps enough of the known classes"
        yield f"No other of the front{which} trains much faster.", best.trial
        return
    one = max(cheaper, key=lambda record: record.values.get(LOCAL.name, 0.0))
    seconds, less = one.values[SECONDS.name], best.values[LOCAL.name] - one.values.get(LOCAL.name, 0.0)
    cost = f"{_points(run, LOCAL.name, less)} less" if less > 0 else "no less"
    saved = f"{SECONDS.text(seconds)} instead of {SECONDS.text(own)}"
    yield f"The next faster, trial {one.trial}, trains in {saved}, for {cost} on yours.", one.trial


def left_out(run: Run, members: Sequence[int]) -> str:
    """Say how many of the front are not among some members, and why; nothing where all are."""
    front = {trial: run.record(trial).values for trial in run.front}
    free = front.keys() - useful(front, run.info.untouched.values, run.info.task.most_frequent)
    best = None if run.best is None else front[run.best]
    rest = [trial for trial in run.front if trial not in members]
    counts = Counter(
        "no better on yours than the untouched model, or than always the most frequent class"
        if trial in free
        else "surely less accurate than the best"
        if best and not is_worth_naming(front[trial], best, run.scored_samples, run.objectives)
        else "near to one that is listed"
        for trial in rest
    )
    why = "; ".join(f"{count} {reason}" for reason, count in counts.most_common())
    return f"{len(rest)} more of the front, which --all shows: {why}" if rest else ""


def _measured(run: Run, record: TrialRecord) -> bool:
    return GLOBAL.name in record.values and GLOBAL.name in run.info.untouched.values


def _allowed(run: Run) -> float:
    allowed = run.info.config.limits.forgetting
    return FORGETTING if allowed is None else allowed


def _forgets(run: Run, record: TrialRecord) -> bool:
    """Return whether a trial loses more of the global score than the best one may."""
    if not _measured(run, record):
        return False
    return record.values[GLOBAL.name] < run.info.untouched.values[GLOBAL.name] - _allowed(run) - 1e-12


def _text(run: Run, record: TrialRecord) -> str:
    return run.objective(LOCAL.name).text(record.values[LOCAL.name])


def _points(run: Run, name: str, difference: float) -> str:
    """Return a difference of two scores: ``"2.0 points"``."""
    unit = run.objective(name).unit
    return f"{difference:.3f} {unit}" if unit in SCORES else f"{100 * difference:.1f} points"
