"""Optuna's ranges of knobs: a trial of a shared study is made with its values at once, not asked for one by one."""

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.plugin.compose import Composed
from tuner.plugin.knobs import Choice, Knob


def ranges_of(composed: Composed) -> dict[str, BaseDistribution]:
    """Return Optuna's ranges of the knobs that are searched."""
    return {name: _range(composed.knobs[name]) for name in composed.searched}


def _range(knob: Knob) -> BaseDistribution:
    if isinstance(knob, Choice):
        return CategoricalDistribution(knob.options)
    if knob.whole:
        return IntDistribution(int(knob.low), int(knob.high), log=knob.log)
    return FloatDistribution(knob.low, knob.high, log=knob.log)
