"""Early exits: side heads along the frozen blocks, so that samples that are easy for this user exit early.

Source: PersEPhonEE (HotMobile 2021). Exit i of M sits where the backbone's FLOPs have reached i/(M+1).
"""

from collections.abc import Iterable, Mapping, Sequence
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
    Scalar,
    Stage,
    Strategy,
    TrialPlan,
    head_macs,
    hookimpl,
    linear_inputs,
)

MOST_EXITS = 6
MOST_FEATURES = 2048  # that a head in closed form reads
MOST_SHARE = 0.05  # of the backbone's FLOPs that one head may cost
SHARE = 0.6  # of the side of the input, at which an exit of a smaller one answers
STRIDE = 32  # sides are multiples of what most networks divide them by
ROUND = 8  # from this many on, numbers of channels are multiples of it
Head = Literal["closed-form", "trained"]
Init = Literal["none", "global"]
LossMix = Literal["distilled", "supervised", "pseudo", "supervised+distilled", "pseudo+distilled"]


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about exits.

    Attributes:
        mode: ``none``, or the parts that train.
        count: Number of exits, M.
        begin: Share of the backbone's FLOPs from which on exits are spread.
        head: ``closed-form``, a linear layer that is solved for; or ``trained``, convolutions that train by steps.
        ridge: Penalty of a head in closed form, in samples.
        init: What exits begin with: nothing, or what they learn once from all of the global training data.
        global_weight: What a global sample counts there for a head in closed form, where one of the user's counts 1.
        width: Largest number of a trained head's channels.
        loss: Loss of the exits.
        distill_weight: Weight of distillation next to another loss; 1 where it is the only one.
        temperature: Temperature of distillation.
        tolerance: Accuracy that leaving early may cost: share of right answers, or of targets met.
        against: Accuracy that the tolerance is measured from.
        confidence: Confidence at which leaving early costs at most that.
        per_exit: Whether every exit has a threshold of its own.
        joint: Weight of the exits' losses in the loss of a tail that they train with; 0 where it trains alone, and
            exits are at or before its cut.
        gated: Whether exits in closed form have gates, and keep what the model knows.
        small: Side in pixels of a smaller input, to which the whole network answers first; 0 for none.
        flip: Whether what trained exits read is mirrored at random, where the task's samples may be.
    """

    mode: HeadsMode
    count: int = 1
    begin: float = 0.0
    head: Head = "trained"
    ridge: float = 0.0
    width: int = 128
    loss: LossMix = "distilled"
    distill_weight: float = 1.0
    temperature: float = 4.0
    tolerance: float = 0.01
    against: Against = "original"
    per_exit: bool = False
    confidence: float = 0.5
    init: Init = "none"
    global_weight: float = 1.0
    joint: float = 0.0
    flip: bool = False
    gated: bool = False
    small: int = 0


class Exits(Strategy[Knobs]):
    """Side heads along the blocks."""

    name, stage = "exits", Stage.HEADS
    objectives = ("mean_flops",)

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw whether there are exits, and if so their number, their width and their loss."""
        mode = draw.choice("mode", get_args(HeadsMode))
        if mode == "none":
            return Knobs("none")
        count = draw.integer("count", 1, MOST_EXITS)
        begin = draw.choice("begin", (0.0, 0.25, 0.5))
        head = draw.choice("head", get_args(Head))
        ridge = draw.number("ridge", 1.0, 3000.0, start=100.0, log=True) if head == "closed-form" else 0.0
        width = draw.choice("width", (128, 64, 32, 16))
        loss = draw.choice("loss", get_args(LossMix))
        weight = draw.number("distill_weight", 0.1, 1.0) if "+" in loss else 1.0
        temperature = draw.number("temperature", 1.0, 8.0) if "distilled" in loss else 4.0
        tolerance = draw.choice("tolerance", (0.01, 0.0, 0.03))
        against = draw.choice("against", get_args(Against))
        per_exit = draw.choice("per_exit", (False, True))
        confidence = draw.choice("confidence", (0.95, 0.8, 0.5))
        init = draw.choice("init", get_args(Init))
        is_weighed = init == "global" and head == "closed-form"
        global_weight = draw.number("global_weight", 0.03, 1.0, start=1.0, log=True) if is_weighed else 1.0
        joint = draw.choice("joint", (0.0, 0.3, 1.0)) if mode == "with-tail" else 0.0
        flip = draw.choice("flip", (False, True)) if head == "trained" else False
        gated = draw.choice("gated", (False, True)) if head == "closed-form" else False
        taken = [one.size for one in model.sizes if one.blocks] if head == "closed-form" else []
        small = draw.choice("small", (0, *taken)) if taken else 0
        return Knobs(
            mode,
            count,
            begin,
            head,
            ridge,
            width,
            loss,
            weight,
            temperature,
            tolerance,
            against,
            per_exit,
            confidence,
            init,
            global_weight,
            joint,
            flip,
            gated,
            small,
        )

    def sizes(self, own: int) -> Sequence[int]:
        """Return the size of a smaller input: at three fifths of the side it costs a third."""
        size = STRIDE * round(SHARE * own / STRIDE)
        return (size,) if 0 < size < own else ()

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        """Return exits that are solved for: beside a tail, with gates that keep what the model knows, and alone.

        Where the network takes a smaller input, one exit of that too.
        """
        solved: dict[str, Scalar] = {
            "exits.mode": "with-tail",
            "exits.head": "closed-form",
            "exits.gated": True,
            "exits.loss": "supervised",
        }
        small = [{**solved, "exits.small": one.size} for one in model.sizes[-1:] if one.blocks]
        return (solved, {"exits.mode": "exits-only", "exits.head": "closed-form"}, *small)

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Place the exits, and set their losses."""
        if knobs.mode == "none":
            return plan
        width = knobs.width if knobs.head == "trained" else 0
        smaller = (Exit(plan.model.num_blocks - 1, 0, knobs.small),) if knobs.small and not width else ()
        heads = HeadsPlan(
            mode=knobs.mode,
            exits=(*plan.heads.exits, *smaller, *placed(plan.model, knobs.count, width, knobs.begin)),
            supervised=1.0 if "supervised" in knobs.loss else 0.0,
            distilled=knobs.distill_weight if "distilled" in knobs.loss else 0.0,
            pseudo=1.0 if "pseudo" in knobs.loss else 0.0,
            temperature=knobs.temperature,
            tolerance=knobs.tolerance,
            against=knobs.against,
            per_exit=knobs.per_exit,
            ridge=knobs.ridge,
            confidence=knobs.confidence,
            global_weight=knobs.global_weight if knobs.init == "global" else 0.0,
            joint=knobs.joint,
            flips=knobs.flip,
            gated=knobs.gated,
        )
        return replace(plan, heads=heads) if heads.exits else plan


def placed(model: ModelInfo, count: int, width: int, begin: float = 0.0) -> tuple[Exit, ...]:
    """Return exits after the blocks nearest to i/(count + 1) of the backbone's FLOPs, ties to the later block.

    The FLOPs before `begin` are left out: where shallow exits are hardly ever sure, the others stand closer together.

    Exits that fall on the same block are merged; a head that costs more than 5 % of the backbone at any width is left
    out.

    Args:
        model: Backbone.
        count: Number of exits.
        width: Largest number of a head's channels; 0 for linear heads.
        begin: Share of the FLOPs from which on exits are spread.
    """
    flops = list(accumulate(block.flops for block in model.blocks))  # flops[k - 1]: of the blocks before block k
    channels_at: dict[int, int | None] = {}
    for number in range(1, count + 1 if model.num_blocks > 1 else 0):
        wanted = flops[-1] * (begin + (1 - begin) * number / (count + 1))
        nearest = min(range(1, model.num_blocks), key=lambda block: (abs(flops[block - 1] - wanted), -block))
        channels_at[nearest] = narrowed(model, nearest, width)
    return tuple(Exit(block, channels) for block, channels in sorted(channels_at.items()) if channels is not None)


def narrowed(model: ModelInfo, block: int, width: int) -> int | None:
    """Return the most channels, at most `width`, with which a head costs up to 5 % of the backbone; None if none do.

    A linear head has 0 channels, and as many features as there are sums of (`MOST_FEATURES`).
    """
    total = sum(other.flops for other in model.blocks)
    shape = model.blocks[block].in_shape
    if not width:
        fits = linear_inputs(shape) <= MOST_FEATURES and 2 * head_macs(shape, 0, model.outputs) <= MOST_SHARE * total
        return 0 if fits else None
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
