"""Caching: the frozen prefix runs once per sample; its outputs are stored, and reused by every epoch and trial.

Source: MoIL's FMC (fp32) and Cache-and-Reuse, equations 1 and 2 (n-bit channel-wise codes).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import CachePlan, Draw, ModelInfo, Stage, Strategy, TrialPlan, hookimpl

#: Changes that act on inputs alone.
UNSTORED = frozenset({"drift", "noise"})


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about caching.

    Attributes:
        bits: Width of a stored value.
        augment: Strength of the random changes of stored maps.
        left_out: Those of the task's changes that are not drawn: which of them pays depends on the maps.
    """

    bits: int
    augment: float
    left_out: tuple[str, ...] = ()


class Cache(Strategy[Knobs]):
    """Store the prefix's outputs at some width."""

    name, stage = "cache", Stage.CACHE

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the widths are the same for every model
        """Draw the width of a stored value, the strength of augmentation, and which of several changes are drawn."""
        bits = draw.choice("bits", (8, 32, 16, 4, 2, 1), start=8)
        augment = draw.number("augment", 0.0, 1.0, start=0.0)
        changes = sorted({*draw.task.augment} - UNSTORED) if draw.task else []
        if not augment or len(changes) == 1:
            return Knobs(bits, augment)
        return Knobs(bits, augment, tuple(one for one in changes if not draw.choice(one, (True, False), start=True)))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the caching strategy, the width, the strength and the changes."""
        return replace(plan, cache=CachePlan(self.name, knobs.bits, knobs.augment, knobs.left_out))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Cache()]
