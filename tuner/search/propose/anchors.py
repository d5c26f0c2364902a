"""The first plans of a study: each strategy's anchors, and the start values of all knobs."""

import logging
import math
import random
from collections.abc import Iterable, Iterator, Mapping

from tuner.errors import PlanError
from tuner.plan.parts import Scalar
from tuner.plan.trial import TrialPlan
from tuner.planner.price import price
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.load.calls import CALL_SECONDS, fault, limited
from tuner.plugin.sources import preferred_values, random_values
from tuner.search.propose.structures import Compose
from tuner.search.setting import Setting

log = logging.getLogger(__name__)
#: An anchor that trains is tried only if it is expected to take at most this share of the time.
ANCHOR_SHARE = 0.1
#: The same of a plan of an earlier run, which did well there.
EARLIER_SHARE = 0.3
#: Plans drawn to learn what a study may ask the store for.
DRAWN = 128


def earlier(setting: Setting, compose: Compose) -> Iterator[Composed]:
    """Yield the plans of an earlier run to try first, each once, but for those that would take too long here."""
    for composed in _each_once(setting.earlier, compose):
        if not _is_too_long(composed.plan, setting, EARLIER_SHARE):
            yield composed


def anchors(setting: Setting, compose: Compose, *, climbs: bool = False) -> Iterator[Composed]:
    """Yield the strategies' anchors, each once; where there is none, what the start values give.

    Where the study ``climbs`` a ladder of structures, it decides itself for which there is time.
    """
    share = math.inf if climbs else ANCHOR_SHARE
    for number, composed in enumerate(_each_once(_anchor_values(setting), compose)):
        if number == 0 or not _is_too_long(composed.plan, setting, share):
            yield composed


def _each_once(plans: Iterable[Mapping[str, Scalar]], compose: Compose) -> Iterator[Composed]:
    """Yield plans that can be composed, each once."""
    seen: set[str] = set()
    for values in plans:
        try:
            composed = compose(preferred_values(values))
        except (PlanError, StrategyError):  # its own trials will say what it raises
            continue
        if composed.plan.key() not in seen:
            seen.add(composed.plan.key())
            yield composed


def reachable(compose: Compose) -> Iterator[TrialPlan]:
    """Yield plans drawn at random: what a study may ask the store for."""
    draw = random_values(random.Random(0))
    for _ in range(DRAWN):
        try:
            yield compose(draw).plan
        except (PlanError, StrategyError):  # the same
            continue


def _anchor_values(setting: Setting) -> list[Mapping[str, Scalar]]:
    found = list[Mapping[str, Scalar]]()
    for strategy in setting.strategies:
        try:
            with limited(CALL_SECONDS):
                by = {f"{strategy.stage}.by": strategy.name}
                found += [{**by, **values} for values in strategy.anchors(setting.model)]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            log.warning("strategy %s: anchors %s", strategy.name, fault(error), exc_info=isinstance(error, Exception))
    return found or [{}]


def _is_too_long(plan: TrialPlan, setting: Setting, share: float) -> bool:
    """Return whether a plan is expected to take more than a share of the study's time."""
    time = setting.limits.time_seconds
    return time is not None and price(plan, setting.rates).estimate().spend_seconds > share * time
