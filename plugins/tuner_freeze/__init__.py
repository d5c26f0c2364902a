"""Freezing: only the last blocks train.

Source: MoIL's LF(n) and the trainable-blocks setting of Cache-and-Reuse.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import Draw, ModelInfo, Scalar, Stage, Strategy, TrialPlan, hookimpl

#: Learning rates to begin with, of tails with at most a fifth of the network's FLOPs, and of those with two or more.
SHALLOW_RATE, DEEP_RATE = 1e-3, 2e-4


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

    Shallow tails take 1e-3 with a warm-up; those of more than two fifths 2e-4. Three seeds of CIFAR-10 have 71.0 % at
    1.5e-4, 68.9 at 3e-4 and 60.7 at 8e-4 there; sign digits 97.7, 98.2 and 98.3 (MobileNetV2, 320 photos, 8 epochs).
    """
    return SHALLOW_RATE * math.pow(DEEP_RATE / SHALLOW_RATE, min(1.0, max(0.0, (share - 0.2) / 0.2)))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Freeze()]
