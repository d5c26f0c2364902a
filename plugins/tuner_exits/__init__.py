"""Early exits: side heads along the frozen blocks, so that what is easy for this user leaves early.

Source: PersEPhonEE (HotMobile 2021). Exit i of M sits where the backbone's FLOPs have reached i/(M+1).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, get_args

from tuner.heads import Against, Exit, HeadsMode, HeadsPlan, head_macs
from tuner.hookspecs import hookimpl
from tuner.knobs import Draw
from tuner.plan import ModelInfo, Stage, TrialPlan
from tuner.results.objectives import Objective
from tuner.strategy import Strategy

MOST_EXITS = 6
MOST_SHARE = 0.05  # of the backbone's FLOPs that one head may cost
ROUND = 8  # channels come in multiples of this where there are as many
Loss = Literal["distilled", "supervised", "pseudo", "supervised+distilled", "pseudo+distilled"]


@dataclass(frozen=True, slots=True)
class Knobs:
    """What the search decides of exits.

    Attributes:
        mode: ``none``, or what trains.
        count: M.
        width: Channels of a head at most.
        loss: What the exits learn from.
        distill_weight: Of distillation beside the other loss; 1 where it is alone.
        temperature: Of distillation.
        against: What the tolerance is measured from.
        per_exit: Whether every exit has a threshold of its own.
    """

    mode: HeadsMode
    count: int = 1
    width: int = 128
    loss: Loss = "distilled"
    distill_weight: float = 1.0
    temperature: float = 4.0
    against: Against = "original"
    per_exit: bool = False


class Exits(Strategy[Knobs]):
    """Side heads along the blocks."""

    name, stage = "exits", Stage.HEADS

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - what does not fit is left out in `apply`
        """Draw whether there are exits, and if so how many, how wide and what they learn from."""
        mode = draw.choice("mode", get_args(HeadsMode))
        if mode == "none":
            return Knobs("none")
        count = draw.integer("count", 1, MOST_EXITS)
        width = draw.choice("width", (128, 64, 32, 16))
        loss = draw.choice("loss", get_args(Loss))
        weight = draw.number("distill_weight", 0.1, 1.0) if "+" in loss else 1.0
        temperature = draw.number("temperature", 1.0, 8.0) if "distilled" in loss else 4.0
        against = draw.choice("against", get_args(Against))
        return Knobs(mode, count, width, loss, weight, temperature, against, draw.choice("per_exit", (False, True)))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Place the exits, and say what trains them."""
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

    Exits that fall on one block are one; a head that costs more than 5 % of the backbone at any width is left out.

    Args:
        model: Its blocks.
        count: Exits asked for.
        width: Channels of a head at most.
    """
    reached = list(accumulate(block.flops for block in model.blocks))  # reached[k - 1]: before block k
    found: dict[int, int | None] = {}
    for number in range(1, count + 1 if model.num_blocks > 1 else 0):
        wanted = reached[-1] * number / (count + 1)
        block = min(range(1, model.num_blocks), key=lambda at: (abs(reached[at - 1] - wanted), -at))
        found[block] = narrowed(model, block, width)
    return tuple(Exit(block, channels) for block, channels in sorted(found.items()) if channels is not None)


def narrowed(model: ModelInfo, block: int, width: int) -> int | None:
    """Return the most channels, up to `width`, with which a head on `block` costs at most 5 % of the backbone."""
    total = sum(one.flops for one in model.blocks)
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
    """Offer what leaving early saves, at the calibrated thresholds."""
    return [Objective("mean_latency_seconds", "minimise", "s"), Objective("mean_flops", "minimise", "FLOP")]
