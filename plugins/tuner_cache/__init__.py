"""Caching: the frozen prefix runs once per sample, its outputs are kept and reused by every epoch and trial.

Source: MoIL's FMC (fp32) and Cache-and-Reuse, equations 1 and 2 (n-bit channel-wise codes).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tuner.hookspecs import hookimpl
from tuner.knobs import Draw
from tuner.plan import CachePlan, ModelInfo, Stage, TrialPlan
from tuner.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Knobs:
    """`bits`: a stored value's width. `augment`: strength of random changes of stored maps."""

    bits: int
    augment: float


class Cache(Strategy[Knobs]):
    """Keep the prefix's outputs at a chosen width."""

    name, stage = "cache", Stage.CACHE

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the widths are the same for every model
        """Draw the width of a stored value, and the strength of augmentation."""
        return Knobs(bits=draw.choice("bits", (8, 32, 16, 4, 2, 1)), augment=draw.number("augment", 0.0, 1.0))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set who caches, the width and the strength."""
        return replace(plan, cache=CachePlan(by=self.name, bits=knobs.bits, augment=knobs.augment))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Cache()]
