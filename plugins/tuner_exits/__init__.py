"""Early exits: side heads along the frozen blocks, so that samples that are easy for this user exit early.

Source: PersEPhonEE (HotMobile 2021). Exit i of M sits where the backbone's FLOPs have reached i/(M+1).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, get_args

from tuner.plugin import (
    Against,
    Draw,
    Exit,
    HeadsMode,
    HeadsPlan,
    ModelInfo,
    Objective,
    Stage,
    Strategy,
    TrialPlan,
    head_macs,
    hookimpl,
)

MOST_EXITS = 6
MOST_SHARE = 0.05  # of the backbone's FLOPs that one head may cost
ROUND = 8  # from this many on, numbers of channels are multiples of it
LossMix = Literal["distilled", "supervised", "pseudo", "supervised+distilled", "pseudo+distilled"]


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about exits.

    Attributes:
        mode: ``none``, or the parts that train.
        count: Number of exits, M.
        width: Largest number of a head's channels.
        loss: Loss of the exits.
        distill_weight: Weight of distillation next to another loss; 1 where it is the only one.
        temperature: Temperature of distillation.
        against: Accuracy that the tolerance is measured from.
        per_exit: Whether every exit has a threshold of its own.
    """

    mode: HeadsMode
    count: int = 1
    width: int = 128
    loss: LossMix = "distilled"
    distill_weight: float = 1.0
    temperature: float = 4.0
    against: Against = "original"
    per_exit: bool = False


class Exits(Strategy[Knobs]):
    """Side heads along the blocks."""

    name, stage = "exits", Stage.HEADS

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - exits that do not fit are left out in `apply`
        """Draw whether there are exits, and if so their number, their width and their loss."""
        mode = draw.choice("mode", get_args(HeadsMode))
        if mode == "none":
            return Knobs("none")
        count = draw.integer("count", 1, MOST_EXITS)
        width = draw.choice("width", (128, 64, 32, 16))
        loss = draw.choice("loss", get_args(LossMix))
        weight = draw.number("distill_weight", 0.1, 1.0) if "+" in loss else 1.0
        temperature = draw.number("temperature", 1.0, 8.0) if "distilled" in loss else 4.0
        against = draw.choice("against", get_args(Against))
        return Knobs(mode, count, width, loss, weight, temperature, against, draw.choice("per_exit", (False, True)))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Place the exits, and set their losses."""
        if knobs.mode == "none":
            return plan
        heads = HeadsPlan(
            mode=knobs.mode,
            exits=(*plan.heads.exits, *placed(plan.model, knobs.count, knobs.width)),
            supervised=1.0 if "supervised" in knobs.loss else 0.0,
            distilled=knobs.distill_weight if "distilled" in knobs.loss else 0.0,
            pseudo=1.0 if "pseudo" in knobs.loss else 0.0,
            temperature=knobs.temperature,
            against=knobs.against,
            per_exit=knobs.per_exit,
        )
        return replace(plan, heads=heads) if heads.exits else plan


def placed(model: ModelInfo, count: int, width: int) -> tuple[Exit, ...]:
    """Return exits after the blocks nearest to i/(count + 1) of the backbone's FLOPs, ties to the later block.

    Exits that fall on the same block are merged; a head that costs more than 5 % of the backbone at any width is left
    out.

    Args:
        model: Backbone.
        count: Number of exits.
        width: Largest number of a head's channels.
    """
    flops = list(accumulate(block.flops for block in model.blocks))  # flops[k - 1]: of the blocks before block k
    channels_at: dict[int, int | None] = {}
    for number in range(1, count + 1 if model.num_blocks > 1 else 0):
        wanted = flops[-1] * number / (count + 1)
        nearest = min(range(1, model.num_blocks), key=lambda block: (abs(flops[block - 1] - wanted), -block))
        channels_at[nearest] = narrowed(model, nearest, width)
    return tuple(Exit(block, channels) for block, channels in sorted(channels_at.items()) if channels is not None)


def narrowed(model: ModelInfo, block: int, width: int) -> int | None:
    """Return the most channels, at most `width`, with which a head costs up to 5 % of the backbone; None if none do."""
    total = sum(other.flops for other in model.blocks)
    shape = model.blocks[block].in_shape
    for channels in range(width, 0, -1):
        is_round = channels % ROUND == 0 or channels < ROUND
        if is_round and 2 * head_macs(shape, channels, model.outputs) <= MOST_SHARE * total:
            return channels
    return None


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Exits()]


@hookimpl
def tuner_objectives() -> Iterable[Objective]:
    """Offer the mean latency and the mean FLOPs of a prediction, at the calibrated thresholds."""
    return [Objective("mean_latency_seconds", "minimise", "s"), Objective("mean_flops", "minimise", "FLOP")]
