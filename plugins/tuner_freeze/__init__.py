"""Freezing: only the last blocks train.

Source: MoIL's LF(n) and the trainable-blocks setting of Cache-and-Reuse.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tuner.hookspecs import hookimpl
from tuner.knobs import Draw
from tuner.plan import ModelInfo, Stage, TrialPlan
from tuner.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Knobs:
    """`trainable`: how many of the last blocks train; all of them is full fine-tuning."""

    trainable: int


class Freeze(Strategy[Knobs]):
    """Freeze the first blocks, train the last ones."""

    name, stage = "freeze", Stage.SPLIT

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw how many blocks train, in [1, all]."""
        return Knobs(trainable=draw.integer("trainable_blocks", 1, model.num_blocks))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the split."""
        return replace(plan, split=plan.model.num_blocks - knobs.trainable)


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Freeze()]
