"""Which plans of a prior a study tries first: those expected to bring most per second on tasks like this one."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tuner.errors import TunerError
from tuner.plan.parts import Scalar, Stage
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.knobs import Choice, Knob, ValueSource
from tuner.plugin.sources import nearest_option, preferred_values
from tuner.results.prior.file import Prior, PriorPlan, trains
from tuner.results.scores.likeness import device_kind, kind_of_task, likeness
from tuner.results.scores.pareto import area
from tuner.search.admission import Admission
from tuner.search.listener import Listener
from tuner.search.propose.structures import Compose
from tuner.search.setting import Setting
from tuner.search.trials.journal import PRIOR

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
    setting: Setting, compose: Compose, admission: Admission, listener: Listener
) -> list[tuple[Composed, dict[str, int]]]:
    """Return the plans of the setting's prior to try first, in order, each with the attributes of its trial.

    The listener is told what is left out, and why.
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
        if not decision.admits:
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


def _composed(plan: PriorPlan, setting: Setting, compose: Compose) -> Composed | str:
    """Return a plan as it is here, or why it cannot be."""
    names = {strategy.name for strategy in setting.strategies}
    try:
        composed = compose(_nearest_values(plan.knobs))
        for name, by in plan.knobs.items():
            if name.endswith(DECIDES) and (by not in names or composed.values.get(name, by) != by):
                return f"{name} = {by!r} is not searched"
        if (wanted := plan.trains) is None:
            return composed

        def apart(one: Composed) -> float:
            here = trains(one.plan)
            return abs(here.depth - wanted.depth) + abs(here.flops - wanted.flops)

        # train the most similar share of this model, whatever the number of its blocks
        scopes = {one.name for one in setting.strategies if one.stage is Stage.SPLIT}
        for name, knob in composed.knobs.items():
            if name.rpartition(".")[0] in scopes and not knob.fixed:
                tried = (compose(_nearest_values({**plan.knobs, name: depth})) for depth in _whole_values(knob))
                composed = min([composed, *tried], key=apart)
    except (TunerError, StrategyError) as error:
        return str(error)
    return composed


def _nearest_values(knobs: Mapping[str, Scalar]) -> ValueSource:
    """Return a source that prefers some values, and of options the nearest."""
    preferred = preferred_values(knobs)

    def source(knob: Knob) -> Scalar:
        wanted = knobs.get(knob.name)
        if isinstance(knob, Choice) and wanted is not None and wanted not in knob.options:
            return nearest_option(knob.options, wanted)
        return preferred(knob)

    return source


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
    points = [[setting.weighed(one.untouched)] for one in prior.task]
    sizes = [1.0 if setting.forgets_all else one.area for one in prior.task]
    takes = {one.number: START_SECONDS + max(0.0, seconds(one.composed)) for one in found}
    names = ("local_accuracy", "global_accuracy")
    expected = {
        one.number: {
            each.task - 1: setting.weighed({name: getattr(each, name) for name in names}) for each in one.plan.expected
        }
        for one in found
    }
    trials = setting.limits.trials
    left = SHARE * setting.seconds_left
    most = MOST_TRIED if trials is None else min(MOST_TRIED, math.ceil(SHARE * trials))

    def gain(one: Fitting) -> float:
        total = 0.0
        for place, new in expected[one.number].items():
            total += weights[place] * (area([*points[place], new]) - area(points[place])) / sizes[place]
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
        for place, new in expected[best.number].items():
            points[place].append(new)
    return chosen
