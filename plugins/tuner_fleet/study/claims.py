"""Who of several workers tries a plan: what waits in a study's queue, and what is trained; read without a lock."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed
from tuner.plugin.knobs import Choice, Knob
from tuner.search.trials.journal import PRIOR, PROMOTED, RUNG
from tuner_fleet.study.content import HELD, KEY, KIND, NOT_FOR, WORKER

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
#: Somebody trains the plan, or will: a dead worker's trial waits to be tried again.
TAKEN = (TrialState.RUNNING, TrialState.WAITING)
#: Where Optuna's `RetryHeartbeatStaleTrialCallback` notes the numbers of the trials that a trial repeats.
RETRIES = "retry_history"
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
    """Return the attributes of a trial of the queue that a worker begins; what nobody can have meant is put right."""
    attributes: dict[str, Any] = {WORKER: worker, KIND: kind}
    for name, usual in ((RUNG, lowest), (PROMOTED, None), (PRIOR, None)):
        value = trial.user_attrs.get(name)
        if value != usual and not (type(value) is int and value >= 0):
            attributes[name] = usual
    return attributes


def next_waiting(trials: Sequence[FrozenTrial], own: Collection[str]) -> FrozenTrial | None:
    """Return the first trial in the queue that none of some names is barred from, and whose plan nobody trains."""
    waiting = (trial for trial in trials if trial.state is TrialState.WAITING)
    ours = (trial for trial in waiting if not set(own) & _barred(trial))
    return next((trial for trial in ours if not is_early(trial, trials)), None)


def _barred(trial: FrozenTrial) -> set[str]:
    """Return the names that a trial of the queue is not for."""
    names = trial.user_attrs.get(NOT_FOR)
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def is_ours(
    number: int,
    key: str,
    look: Callable[[], Sequence[FrozenTrial]],
    heard: Collection[int],
    rest: Callable[[float], object],
) -> bool:
    """Return whether a trial of the queue has its plan, as soon as that is settled; `heard` had ended when it began."""
    for at in range(LOOKS):
        if at:
            rest(PAUSE)
        trials = look()
        has = _has(trials[number], key, trials, heard)
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


def key_of(plan: TrialPlan) -> str:
    """Return what is equal for plans that train the same, on whatever kind of device."""
    return replace(plan, runtime=replace(plan.runtime, threads=1)).key()


def is_in(
    trials: Sequence[FrozenTrial], states: Collection[TrialState], key: str | None, but: Collection[int] = ()
) -> bool:
    """Return whether a trial of a plan is in one of some states, but for some numbers; no key is no plan's."""
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
    """Return whether another worker has the plan of a trial: began it before, or ended it, and is not in `heard`."""
    key, before = mine.user_attrs.get(KEY), trials[: mine.number]
    return is_in(before, TAKEN, key) or is_in(before, ENDED, key, but=heard)


def is_beyond(
    mine: FrozenTrial, trials: Sequence[FrozenTrial], heard: Collection[int], most: int | None, done: int
) -> bool:
    """Return whether `most` trials may count without one that was just made: several workers claimed the last one.

    So many are `done` among those in `heard`.
    """
    before = (trial for trial in trials[: mine.number] if trial.number not in heard)
    return most is not None and done + sum(one.state in {TrialState.RUNNING, *ENDED} for one in before) >= most


def retries_of(trial: FrozenTrial) -> Sequence[int]:
    """Return the numbers of the trials that this one repeats, the last one last."""
    history = trial.system_attrs.get(RETRIES)
    if not isinstance(history, list):
        return ()
    return [number for number in history if isinstance(number, int) and 0 <= number < trial.number]


def ranges_of(composed: Composed) -> dict[str, BaseDistribution]:
    """Return Optuna's ranges of the knobs that are searched."""
    return {name: _range(composed.knobs[name]) for name in composed.searched}


def _range(knob: Knob) -> BaseDistribution:
    if isinstance(knob, Choice):
        return CategoricalDistribution(knob.options)
    if knob.whole:
        return IntDistribution(int(knob.low), int(knob.high), log=knob.log)
    return FloatDistribution(knob.low, knob.high, log=knob.log)
