"""Resolution: the network sees smaller pictures, at a cost that falls with the square of their side.

Source: the resolution multiplier of MobileNets (Howard et al. 2017).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.plugin import Draw, ModelInfo, Scalar, Stage, Strategy, TrialPlan, hookimpl

#: Sides relative to the task's own, at which cost falls to two thirds and to a third.
SHARES = (0.8, 0.6)
#: Sides are multiples of what most networks divide them by.
STRIDE = 32


class Resolution(Strategy[int]):
    """Choose how large the pictures are that the network sees; the knob is the side of the square, in pixels."""

    name, stage = "resolution", Stage.SIZE
    objectives = ("mean_flops",)

    def sizes(self, own: int) -> Sequence[int]:
        """Return the shares of the task's own size, rounded, that are smaller."""
        near = (STRIDE * round(share * own / STRIDE) for share in SHARES)
        return tuple(dict.fromkeys(size for size in near if 0 < size < own))

    def sample(self, draw: Draw, model: ModelInfo) -> int:
        """Draw the side, of those that the network takes; nothing where there is no other to take."""
        if not model.sizes:
            return 0
        taken = [one.size for one in model.sizes if one.blocks]
        refused = "; ".join(one.refused for one in model.sizes if one.refused)
        pixels = draw.choice("pixels", (model.side, *taken), start=model.side, why=refused)
        return pixels if pixels in taken else 0

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        """Return each smaller side that the network takes."""
        return tuple({"resolution.pixels": one.size} for one in model.sizes if one.blocks)

    def apply(self, plan: TrialPlan, knobs: int) -> TrialPlan:
        """Set the size."""
        return replace(plan, size=knobs)


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Resolution()]
