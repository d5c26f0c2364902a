"""Caching: the frozen prefix runs once per sample; its outputs are stored, and reused by every epoch and trial.

Source: MoIL's FMC (fp32) and Cache-and-Reuse, equations 1 and 2 (n-bit channel-wise codes).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import CachePlan, Draw, ModelInfo, Stage, Strategy, TrialPlan, hookimpl


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about caching.

    Attributes:
        bits: Width of a stored value.
        augment: Strength of the random changes of stored maps.
    """

    bits: int
    augment: float


class Cache(Strategy[Knobs]):
    """Store the prefix's outputs at some width."""

    name, stage = "cache", Stage.CACHE

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the widths are the same for every model
        """Draw the width of a stored value, and the strength of augmentation."""
        bits = draw.choice("bits", (8, 32, 16, 4, 2, 1), start=8)
        return Knobs(bits=bits, augment=draw.number("augment", 0.0, 1.0, start=0.0))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the caching strategy, the width and the strength."""
        return replace(plan, cache=CachePlan(by=self.name, bits=knobs.bits, augment=knobs.augment))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Cache()]
