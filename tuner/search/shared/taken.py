"""Which plans of a shared study somebody trains, or will: read from its trials, without a lock."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from optuna.trial import FrozenTrial, TrialState

from tuner.plan.trial import TrialPlan
from tuner.search.shared.content import KEY

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
#: Somebody trains the plan, or will: a dead worker's trial waits to be tried again.
TAKEN = (TrialState.RUNNING, TrialState.WAITING)
#: Where Optuna's `RetryHeartbeatStaleTrialCallback` notes the numbers of the trials that a trial repeats.
RETRIES = "retry_history"


def key_of(plan: TrialPlan) -> str:
    """Return what is equal for plans that train the same, on whatever kind of device."""
    return replace(plan, runtime=replace(plan.runtime, threads=1)).key()


def is_in(
    trials: Sequence[FrozenTrial], states: Collection[TrialState], key: str | None, but: Collection[int] = ()
) -> bool:
    """Return whether a trial of a plan is in one of some states.

    Args:
        trials: Of the study, the first ones at least.
        states: Any of them.
        key: Of the plan; where it is not known, no trial is known to be of it.
        but: Numbers of trials that are not looked at.
    """
    return key is not None and any(
        trial.state in states
        and trial.user_attrs.get(KEY) == key
        and trial.number not in but
        and not is_void(trial, trials)
        for trial in trials
    )


def is_void(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> bool:
    """Return whether a waiting trial is not to be begun, ever.

    A dead worker's trial is put in the queue again before it is marked as failed, so that the plan is not lost where
    this worker dies too. So it may be there twice, and the first counts; and the trial may have ended after all. Or its
    worker died before it gave the plan up to another one, that has carried it through.
    """
    history = retries_of(trial)
    if trial.state is not TrialState.WAITING or not history:
        return False
    return (
        trials[history[-1]].state in ENDED
        or any(retries_of(one) == history for one in trials[: trial.number])
        or is_in(trials, (TrialState.COMPLETE,), trial.user_attrs.get(KEY))
    )


def is_early(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> bool:
    """Return whether a waiting trial is not to be begun yet: its plan is being trained, or may be."""
    history = retries_of(trial)
    before = history and trials[history[-1]].state is TrialState.RUNNING
    return bool(before) or is_in(trials, (TrialState.RUNNING,), trial.user_attrs.get(KEY))


def has_another(mine: FrozenTrial, trials: Sequence[FrozenTrial], heard: Collection[int]) -> bool:
    """Return whether another worker has the plan of a trial: began it before, or ended it unheard.

    Args:
        mine: The trial that was just made.
        trials: All trials of the study.
        heard: Numbers of ended trials that this worker knew when it chose its plan.
    """
    key, before = mine.user_attrs.get(KEY), trials[: mine.number]
    return is_in(before, TAKEN, key) or is_in(before, ENDED, key, but=heard)


def is_beyond(
    mine: FrozenTrial, trials: Sequence[FrozenTrial], heard: Collection[int], most: int | None, done: int
) -> bool:
    """Return whether there may be enough trials before one that was just made: several workers claimed the last one.

    Args:
        mine: The trial.
        trials: All trials of the study.
        heard: Numbers of ended trials that this worker knows.
        most: How many are to count; None for any number.
        done: How many of those that it knows count.
    """
    before = (trial for trial in trials[: mine.number] if trial.number not in heard)
    return most is not None and done + sum(one.state in {TrialState.RUNNING, *ENDED} for one in before) >= most


def retries_of(trial: FrozenTrial) -> Sequence[int]:
    """Return the numbers of the trials that this one repeats, the last one last."""
    history = trial.system_attrs.get(RETRIES)
    if not isinstance(history, list):
        return ()
    return [number for number in history if isinstance(number, int) and 0 <= number < trial.number]
