"""Which plans of a prior a study tries first: those expected to bring most per second on tasks like this one."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tuner.errors import TunerError
from tuner.plan.parts import Scalar, Stage
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.knobs import Choice, Knob, ValueSource
from tuner.plugin.sources import nearest_option, preferred_values
from tuner.results.prior.file import Prior, PriorPlan, Trains, trains
from tuner.results.scores.likeness import device_kind, kind_of_task, likeness
from tuner.results.scores.pareto import area
from tuner.search.admission import Admission, Refused
from tuner.search.listener import Listener
from tuner.search.setting import Setting
from tuner.search.trials.journal import PRIOR, RUNG

#: A prior's plans take at most this share of the time, and of the trials; and are at most so many.
SHARE, MOST_TRIED = 0.25, 12
#: Starting a trial takes about so long, whatever it trains.
START_SECONDS = 0.3
#: A plan is left out that is expected to add less than this share of the hypervolume to those before it.
LEAST_GAIN = 1e-3
#: Depths that are tried to find the one nearest to a plan's.
MOST_DEPTHS = 64
#: End of the name of a knob that draws which strategy decides.
DECIDES = ".by"


class Fitting(NamedTuple):
    """A plan of a prior as it is here: its number in the file, from 1, and what it is expected to bring."""

    number: int
    plan: PriorPlan
    composed: Composed


def prior_plans(
    setting: Setting,
    compose: Callable[[ValueSource], Composed],
    admission: Admission,
    listener: Listener,
) -> list[tuple[Composed, dict[str, int]]]:
    """Return the plans of the setting's prior to try first, in order, each with the attributes of its trial.

    Args:
        setting: The study's.
        compose: Composes a plan from a source of values.
        admission: Decides whether a plan may run here, and what it takes.
        listener: Receives what is left out, and why.
    """
    prior = setting.portfolio
    if prior is None:
        return []
    unknown, unfit, found = set[str](), list[str](), dict[str, Fitting]()
    for number, plan in enumerate(prior.plan, 1):
        composed = _composed(plan, setting, compose)
        if isinstance(composed, str):
            unfit.append(composed)
            continue
        unknown |= {name for name in plan.knobs.keys() - composed.values.keys() if not name.endswith(DECIDES)}
        if composed.plan.key() in found:
            continue
        decision = admission.admit(composed.plan, ())
        if isinstance(decision, Refused):
            unfit.append(decision.reason)
            continue
        found[composed.plan.key()] = Fitting(number, plan, composed)
    chosen = _chosen(prior, setting, list(found.values()), lambda one: admission.seconds(one.plan, ()))
    tasks = len(prior.task)
    built = f", which was built from {tasks} task{'' if tasks == 1 else 's'}" if tasks else ""
    listener.say(f"trying first {len(chosen)} of {len(prior.plan)} plans of the prior{built}")
    if unfit:
        listener.say(f"plans of the prior that do not fit here: {len(unfit)}; the first one because: {unfit[0]}")
    if unknown:
        listener.say(f"knobs of the prior that are not searched here are skipped: {', '.join(sorted(unknown))}")
    return [(one.composed, {PRIOR: one.number}) for one in chosen]


def enqueue_first(
    enqueue: Callable[[Composed, dict[str, int]], object],
    first: Sequence[Composed],
    prior: Sequence[tuple[Composed, dict[str, int]]],
    *,
    top: bool,
) -> None:
    """Put a study's first plans in its queue, each once: those of the prior before the others.

    Args:
        enqueue: Puts a plan in the queue, with the attributes of its trial.
        first: Plans that suit most tasks.
        prior: From `prior_plans`.
        top: Whether the first of `first` is known to suit the task: it is tried before all, at once on the top rung.
    """
    known = set[str]()
    others = [(composed, dict[str, int]()) for composed in first[top:]]
    for composed, place in [*((one, {RUNG: 0}) for one in first[:top]), *prior, *others]:
        if composed.plan.key() not in known:
            enqueue(composed, place)
        known.add(composed.plan.key())


def _composed(plan: PriorPlan, setting: Setting, compose: Callable[[ValueSource], Composed]) -> Composed | str:
    """Return a plan as it is here, or why it cannot be."""

    def source(knobs: Mapping[str, Scalar]) -> ValueSource:
        given = preferred_values(knobs)

        def value(knob: Knob) -> Scalar:
            wanted = knobs.get(knob.name)
            if isinstance(knob, Choice) and wanted is not None and wanted not in knob.options:
                return nearest_option(knob.options, wanted)
            return given(knob)

        return value

    names = {strategy.name for strategy in setting.strategies}
    try:
        composed = compose(source(plan.knobs))
        for name, wanted in plan.knobs.items():
            if name.endswith(DECIDES) and (wanted not in names or composed.values.get(name, wanted) != wanted):
                return f"{name} = {wanted!r} is not searched"
        return composed if plan.trains is None else _as_deep(plan, plan.trains, composed, setting, compose, source)
    except (TunerError, StrategyError) as error:
        return str(error)


def _as_deep(
    plan: PriorPlan,
    wanted: Trains,
    composed: Composed,
    setting: Setting,
    compose: Callable[[ValueSource], Composed],
    source: Callable[[Mapping[str, Scalar]], ValueSource],
) -> Composed:
    """Return the plan that trains the most similar share of this model, whatever the number of its blocks."""

    def apart(one: Composed) -> float:
        here = trains(one.plan)
        return abs(here.depth - wanted.depth) + abs(here.flops - wanted.flops)

    scopes = {one.name for one in setting.strategies if one.stage is Stage.SPLIT}
    best = composed
    for name, knob in composed.knobs.items():
        if name.rpartition(".")[0] in scopes and not knob.fixed:
            tried = (compose(source({**plan.knobs, name: depth})) for depth in _whole_values(knob))
            best = min([best, *tried], key=apart)
    return best


def _whole_values(knob: Knob) -> Sequence[Scalar]:
    """Return the values of a knob that may be a number of blocks; none of one that is not."""
    if isinstance(knob, Choice):
        return knob.options if all(type(one) is int for one in knob.options) else ()
    count = int(knob.high) - int(knob.low)
    return range(int(knob.low), int(knob.high) + 1, 1 + count // MOST_DEPTHS) if knob.whole else ()


def _chosen(
    prior: Prior, setting: Setting, found: list[Fitting], seconds: Callable[[Composed], float]
) -> list[Fitting]:
    """Return plans in the order that adds most expected hypervolume per second, over all tasks, likelier ones more.

    A plan that does well where another one did already adds little, so that different points of the front come early.
    """
    here = kind_of_task(setting.model, setting.task, device_kind())
    weights = [likeness(one.kind, here) for one in prior.task]
    points = [[dict(one.untouched)] for one in prior.task]
    takes = {one.number: START_SECONDS + max(0.0, seconds(one.composed)) for one in found}
    expected = {one.number: {each.task - 1: each for each in one.plan.expected} for one in found}
    trials = setting.limits.trials
    left = SHARE * setting.seconds_left
    most = MOST_TRIED if trials is None else min(MOST_TRIED, math.ceil(SHARE * trials))

    def gain(one: Fitting) -> float:
        total = 0.0
        for place, each in expected[one.number].items():
            new = {"local_accuracy": each.local_accuracy, "global_accuracy": each.global_accuracy}
            total += weights[place] * (area([*points[place], new]) - area(points[place])) / prior.task[place].area
        return total / max(sum(weights), 1e-9)

    chosen = list[Fitting]()
    while found and len(chosen) < most:
        best = max(found, key=lambda one: gain(one) / takes[one.number]) if prior.task else found[0]
        if prior.task and gain(best) < LEAST_GAIN:
            break
        found.remove(best)
        if takes[best.number] > left:
            continue
        left -= takes[best.number]
        chosen.append(best)
        for place, each in expected[best.number].items():
            points[place].append({"local_accuracy": each.local_accuracy, "global_accuracy": each.global_accuracy})
    return chosen
