"""Trials in the queue of a shared study: what is put there, which is next, and who of several workers trains it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.journal import PRIOR, PROMOTED, RUNG
from tuner.search.shared.content import HELD, KEY, KIND, NOT_FOR, WORKER
from tuner.search.shared.taken import ENDED, is_early, is_in

#: Seconds until a worker that has nothing to do looks again.
PAUSE = 0.3
#: How often a worker looks whether others settle who trains a plan, before it leaves the plan to them.
LOOKS = 10


def queued(
    values: Mapping[str, Any], ranges: Mapping[str, BaseDistribution], attributes: Mapping[str, Any]
) -> FrozenTrial:
    """Return a trial to put in the queue."""
    return create_trial(
        state=TrialState.WAITING, params=dict(values), distributions=dict(ranges), user_attrs=dict(attributes)
    )


def offered(refused: FrozenTrial, refuses: str) -> FrozenTrial:
    """Return a trial of the queue that a worker, or its kind of device, refuses as one for the others."""
    own = {WORKER, KIND, KEY, HELD}
    attributes = {name: value for name, value in refused.user_attrs.items() if name not in own}
    attributes[NOT_FOR] = [*_barred(refused), refuses]
    return queued(refused.params, refused.distributions, attributes)


def begun_by(worker: str, kind: str, trial: FrozenTrial, lowest: int) -> dict[str, Any]:
    """Return the attributes of a trial of the queue that a worker begins, those that nobody can have meant put right.

    Args:
        worker: Its name.
        kind: Its kind of device.
        trial: As it waited.
        lowest: Rung of what was put in the queue without one.
    """
    attributes: dict[str, Any] = {WORKER: worker, KIND: kind}
    for name, usual in ((RUNG, lowest), (PROMOTED, None), (PRIOR, None)):
        value = trial.user_attrs.get(name)
        if value != usual and not (type(value) is int and value >= 0):
            attributes[name] = usual
    return attributes


def next_waiting(trials: Sequence[FrozenTrial], own: Collection[str]) -> FrozenTrial | None:
    """Return the first trial in the queue that none of some names is barred from, and whose plan nobody trains.

    Args:
        trials: Of the study.
        own: Names of a worker, and of its kind of device.
    """
    waiting = (trial for trial in trials if trial.state is TrialState.WAITING)
    ours = (trial for trial in waiting if not set(own) & _barred(trial))
    return next((trial for trial in ours if not is_early(trial, trials)), None)


def _barred(trial: FrozenTrial) -> set[str]:
    """Return the names that a trial of the queue is not for."""
    names = trial.user_attrs.get(NOT_FOR)
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def is_ours(
    identity: int,
    key: str,
    look: Callable[[], Sequence[FrozenTrial]],
    heard: Collection[int],
    rest: Callable[[float], object],
) -> bool:
    """Return whether a trial of the queue has its plan, as soon as that is settled.

    Args:
        identity: Of the trial, which has noted its key.
        key: Of its plan.
        look: Returns all trials of the study as they are now.
        heard: Numbers of ended trials that this worker knew when it began the trial.
        rest: Sleeps so many seconds.
    """
    for at in range(LOOKS):
        if at:
            rest(PAUSE)
        trials = look()
        mine = next(trial for trial in trials if trial._trial_id == identity)  # noqa: SLF001 - Optuna's storages know a trial by nothing else
        has = _has(mine, key, trials, heard)
        if has is not None:
            return has
    return False


def _has(mine: FrozenTrial, key: str, trials: Sequence[FrozenTrial], heard: Collection[int]) -> bool | None:
    """Return whether a trial of the queue has its plan; None while that is not settled.

    Others know what it trains only since it noted its key: the order of numbers alone does not say who was first. It
    gives way to trials that are settled, and to lower ones. Higher ones may have looked before it noted the key: they
    will settle, or give way.
    """
    running = [trial for trial in trials if trial.state is TrialState.RUNNING and trial.user_attrs.get(KEY) == key]
    others = [trial for trial in running if trial.number != mine.number]
    if any(trial.user_attrs.get(HELD) or trial.number < mine.number for trial in others):
        return False
    if is_in(trials, ENDED, key, but=heard):
        return False
    return None if others else True
