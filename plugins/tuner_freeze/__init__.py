"""Freezing: only the last blocks train.

Source: MoIL's LF(n) and the trainable-blocks setting of Cache-and-Reuse.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import Draw, ModelInfo, Scalar, Stage, Strategy, TrialPlan, hookimpl


@dataclass(frozen=True, slots=True)
class Knobs:
    """`trainable`: number of last blocks that train; all of them is full fine-tuning."""

    trainable: int


class Freeze(Strategy[Knobs]):
    """Freeze the first blocks, train the last ones."""

    name, stage = "freeze", Stage.SPLIT

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw how many blocks train, in [1, all]."""
        return Knobs(trainable=draw.integer("trainable_blocks", 1, model.num_blocks, start=1))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the cut."""
        return replace(plan, split=plan.model.num_blocks - knobs.trainable)

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        """Return the last block, the last three, and full fine-tuning at a third of the usual learning rate."""
        return (
            {"freeze.trainable_blocks": 1},
            {"freeze.trainable_blocks": 3},
            {"freeze.trainable_blocks": model.num_blocks, "recipe.learning_rate": 3e-4},
        )


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Freeze()]
