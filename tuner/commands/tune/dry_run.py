"""Preview a run: what it would search, which depths fit, how long filling the store takes; nothing is trained."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.backends.base import Session
from tuner.commands.tune.setup import RunSetup
from tuner.distribution import CANDIDATES, fetching, offered
from tuner.errors import PluginError
from tuner.files import cache_folder
from tuner.machine.awake import CLOCK
from tuner.plan.parts import Scalar, Stage
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.planner.device import Rates
from tuner.planner.price import price
from tuner.plugin.compose import Composed, StrategyError, compose
from tuner.plugin.knobs import Choice, Knob, ValueSource, narrow
from tuner.plugin.sources import preferred_values
from tuner.plugin.strategy import Strategy
from tuner.results.records.config import Budget, RunRequest
from tuner.search.folds import check_possible_folds, with_folds
from tuner.search.listener import LOOKING, MEASURING, OPENING, Listener
from tuner.search.processes.remote import open_remote
from tuner.search.propose.structures import least_training
from tuner.search.setting import CLOSING_SECONDS, objectives_for
from tuner.store.store import open_store
from tuner.task import Task

#: Values tried of a knob that decides the depth.
MOST_DEPTHS = 200
#: What a preview may take in any case: it says which depths --time is too short for.
LOOKING_SECONDS = 60.0
#: Of what is left of it, measuring takes at most this share.
LOOKING_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Depth:
    """The estimate of one depth of training, as `tuner.planner.price.Estimate` has it.

    Attributes:
        trainable: Number of trained blocks.
        sentence: The plan in a sentence.
        over: Names of the limits that the estimate is over.
    """

    trainable: int
    sentence: str
    train_seconds: float
    spend_seconds: float
    peak_bytes: int
    storage_bytes: int
    over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DryRun:
    """A run that was not carried out.

    Attributes:
        knobs: Every knob as text, by name, narrowed to what the search space asks for.
        fill_seconds: Time to fill the store for all depths.
        fill_samples: Number of samples that are not stored yet.
        depths: Estimates, ascending by number of trained blocks.
        notes: What a person should know of the task's files.
        candidates: Those for the model, where there are several; everything else is of the first that can be used.
        choosing_seconds: In which one of them is chosen at most; None without any, or without a limit.
    """

    task: str
    space: str
    limits: Budget
    strategies: tuple[str, ...]
    objectives: tuple[str, ...]
    knobs: dict[str, str]
    fill_seconds: float
    fill_samples: int
    depths: tuple[Depth, ...]
    notes: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    choosing_seconds: float | None = None


def dry_run(task: str, asked: RunRequest, *, started: float | None = None, listener: Listener | None = None) -> DryRun:
    """Preview a run; train nothing.

    Every depth that the space allows is estimated as the study would, with the start values of the recipe, as far as
    the space allows them, and with the few epochs that a study begins with where it can continue a training. The store
    is only read, and not made. The time counts from `started`, see `RunSetup`.
    """
    setup, phase = RunSetup(asked, started, LOOKING_SECONDS), (listener or Listener()).phase  # less is refused by a run
    setup.install()
    setup.choose()
    candidates, seconds = tuple[str, ...](), setup.limits.time_seconds
    choosing: float | None = None
    if (point := offered(CANDIDATES).get("first")) is not None:
        task, candidates, share = point.load()(task, asked.models)
        if candidates and seconds is not None:
            choosing = share * max(0.0, seconds - (CLOCK.now() - setup.started))
    space, limits, end, measuring = setup.space, setup.limits, setup.end, setup.backends[0]
    opening = open_remote(
        setup.host, task, [measuring], kill_at=end, memory_bytes=limits.memory_bytes, many_jobs=True, adapt=untrained
    )
    phase(OPENING)
    with fetching(asked=asked.fetch), opening as sessions:
        session = sessions[measuring]
        phase(LOOKING)
        objectives, notes = objectives_for(session.task, setup.objectives), session.task.notes
        check_possible_folds(setup.folds, session.task)
        (strategies, knobs), wanted = setup.strategies_for(session), setup.wanted
        model, info = session.model, session.task.info
        phase(MEASURING)
        rates = setup.rates(session, math.inf if end is None else LOOKING_SHARE * (end - CLOCK.now()))
        try:
            plans = depths(lambda source: compose(strategies, source, model, info, wanted), strategies)
        except StrategyError as error:
            raise PluginError(f"{error}: its trials would fail") from error
        plans = [with_folds(plan, setup.folds) for plan in plans]
        cached = [plan for plan in plans if plan.cached]
        missing = _missing_samples(session, cached, Path(asked.store or cache_folder() / "store"))
    spent = CLOCK.now() - setup.started  # a run, too, loads libraries, task and model before its first trial
    left = None if seconds is None else max(0.0, seconds - spent - CLOSING_SECONDS - (choosing or 0.0))
    return DryRun(
        task=info.name,
        space=space.name,
        limits=limits,
        strategies=tuple(strategy.name for strategy in strategies),
        objectives=tuple(objective.name for objective in objectives),
        knobs={
            name: str(narrow(knob, space.knobs[name]) if name in space.knobs else knob) for name, knob in knobs.items()
        },
        fill_seconds=missing * max((price(plan, rates).fill_seconds for plan in cached), default=0.0),
        fill_samples=missing,
        depths=tuple(_estimated(plan, rates, missing, limits, left) for plan in plans),
        notes=notes,
        candidates=tuple(candidates),
        choosing_seconds=choosing,
    )


def untrained(task: Task) -> Task:
    """Return a task whose model is not pretrained."""
    pretrain = task.model.pretrain
    if pretrain is None:
        return task
    return replace(task, model=replace(task.model, pretrain=replace(pretrain, is_preview=True)))


def depths(composed: Callable[[ValueSource], Composed], strategies: Sequence[Strategy[Any]]) -> list[TrialPlan]:
    """Return a plan for every number of trained blocks that can come out, as the study's first would be.

    The knobs of strategies that decide the cut are walked through in turn.
    """
    deciders = {strategy.name for strategy in strategies if strategy.stage is Stage.SPLIT}
    first = composed(preferred_values({}))
    plans = {first.plan.trainable: least_training(first, composed).plan}
    for name, knob in first.knobs.items():
        if name.partition(".")[0] in deciders:
            for value in _values(knob):
                one = composed(preferred_values({name: value}))
                if one.plan.trainable not in plans:
                    plans[one.plan.trainable] = least_training(one, composed).plan
    return [plans[trainable] for trainable in sorted(plans)]


def _values(knob: Knob) -> Sequence[Scalar]:
    """Return a knob's values: all of them, or evenly spaced ones where there are too many."""
    if isinstance(knob, Choice):
        return knob.options
    steps = min(MOST_DEPTHS, int(knob.high - knob.low) + 1) if knob.whole else MOST_DEPTHS
    width = (knob.high - knob.low) / max(1, steps - 1)
    return [knob.typed(knob.low + index * width) for index in range(steps)]


def _needed_samples(plan: TrialPlan) -> int:
    """Return the number of samples whose features a plan reads from the store."""
    return plan.read_samples if plan.cached else 0


def _missing_samples(session: Session, plans: Sequence[TrialPlan], folder: Path) -> int:
    """Return how many samples the store lacks for any of the plans; a store that is not there is not made."""
    if not plans or not folder.is_dir():
        return max(map(_needed_samples, plans), default=0)
    return session.missing(plans, open_store(folder))


def _estimated(plan: TrialPlan, rates: Rates, missing: int, limits: Budget, left: float | None) -> Depth:
    """Return a plan's estimate, compared with the limits and with the seconds that are left of the run's time."""
    estimate = price(plan, rates).estimate(min(missing, _needed_samples(plan)))
    checks = (
        ("time", estimate.spend_seconds, left),
        ("train-time", estimate.train_seconds, limits.train_seconds),
        ("memory", estimate.peak_bytes, limits.memory_bytes),
        ("storage", estimate.storage_bytes, limits.storage_bytes),
    )
    over = tuple(name for name, value, limit in checks if limit is not None and value > limit)
    return Depth(trainable=plan.trainable, sentence=describe(plan), **asdict(estimate), over=over)
