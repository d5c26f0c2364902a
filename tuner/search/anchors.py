"""The first plans of a study: each strategy's anchors, and the start values of all knobs."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tuner.errors import PlanError
from tuner.plan.trial import TrialPlan
from tuner.planner import cost
from tuner.plugin.calls import CALL_SECONDS, fault, limited
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.knobs import ValueSource
from tuner.plugin.sources import preferred_values, random_values
from tuner.plugin.strategy import Strategy
from tuner.search.setting import Setting

log = logging.getLogger(__name__)
#: An anchor that trains is tried only if it is expected to take at most this share of the time.
ANCHOR_SHARE = 0.1
#: Plans drawn to learn what a study may ask the store for.
DRAWN = 128


def anchors(
    setting: Setting, compose: Callable[[ValueSource], Composed], *, climbs: bool = False
) -> Iterator[Composed]:
    """Yield the plans to try first, each once: an earlier run's, then the anchors; else what the start values give.

    Args:
        setting: The study's.
        compose: Composes a plan from a source of values.
        climbs: Whether the study climbs a ladder of structures, so that it decides itself for which there is time.

    Raises:
        TunerError: The search space and the strategies do not fit.
    """
    seen: set[str] = set()
    for values in (*setting.earlier, *_values(setting.strategies, setting)):
        try:
            composed = compose(preferred_values(values))
        except (PlanError, StrategyError):  # its own trials will say what it raises
            continue
        if seen and not climbs and _is_too_long(composed.plan, setting):
            continue
        if composed.plan.key() not in seen:
            seen.add(composed.plan.key())
            yield composed


def reachable(compose: Callable[[ValueSource], Composed]) -> Iterator[TrialPlan]:
    """Yield plans drawn at random: what a study may ask the store for."""
    draw = random_values(random.Random(0))
    for _ in range(DRAWN):
        try:
            yield compose(draw).plan
        except (PlanError, StrategyError):  # the same
            continue


def _values(strategies: Sequence[Strategy[Any]], setting: Setting) -> list[Any]:
    found: list[Any] = []
    for strategy in strategies:
        try:
            with limited(CALL_SECONDS):
                own = strategy.anchors(setting.model)
                found += [{f"{strategy.stage}.by": strategy.name, **values} for values in own]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            log.warning("strategy %s: anchors %s", strategy.name, fault(error), exc_info=isinstance(error, Exception))
    return found or [{}]


def _is_too_long(plan: TrialPlan, setting: Setting) -> bool:
    time = setting.limits.time_seconds
    if time is None:
        return False
    return cost.estimate(plan, setting.rates).spend_seconds > ANCHOR_SHARE * time
