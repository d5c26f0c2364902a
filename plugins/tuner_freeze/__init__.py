"""Freezing: only the last blocks train.

Source: MoIL's LF(n) and the trainable-blocks setting of Cache-and-Reuse.
"""

import math
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
        """Draw how many blocks train, in [1, all]; by default the last one, or those of the model's ladder of cuts."""
        usual = sorted({1, *model.depths})
        return Knobs(trainable=draw.integer("trainable_blocks", 1, model.num_blocks, start=1, usual=usual))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the cut."""
        return replace(plan, split=plan.model.num_blocks - knobs.trainable)

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        """Return the model's ladder of cuts, from the cheap end, at a learning rate that falls with the depth."""
        return tuple(
            {
                "freeze.trainable_blocks": blocks,
                "recipe.batch_size": 16,
                "recipe.learning_rate": rate_of(model.share(blocks)),
            }
            for blocks in model.depths
        )


def rate_of(share: float) -> float:
    """Return the learning rate of AdamW to begin with, of a tail with so much of the network's FLOPs.

    Shallow tails take 1e-3 with a warm-up; the whole network 3e-4 (sign digits, MobileNetV2).
    """
    return 1e-3 * math.pow(0.3, max(0.0, (share - 0.25) / 0.75))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Freeze()]
