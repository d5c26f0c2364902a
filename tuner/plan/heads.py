"""Side heads as data: their places, widths, costs and losses, and when a sample leaves.

Source: PersEPhonEE (HotMobile 2021); the head is MSDNet's intermediate classifier (Huang et al., 2018).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tuner.plan.info import MAP_DIMENSIONS, Part, TaskInfo
from tuner.plan.parts import OPTIONAL

HeadsMode = Literal["none", "exits-only", "with-tail"]
Against = Literal["original", "best"]
#: Confidence of a bound that is the measured value itself.
CHANCE = 0.5
#: Stands for the penalty of exits with gates, which leave-one-out chooses.
GATED_RIDGE = 1.0


@dataclass(frozen=True, slots=True)
class Exit(Part):
    """A side head.

    Attributes:
        block: Number of blocks before it; it reads their output.
        channels: Channels of its two convolutions; 0 for a linear layer on its input's mean over all positions.
        size: Side in pixels at which the blocks before it run once more, of a smaller input; 0 for those of the chain.
    """

    block: int
    channels: int
    size: int = field(default=0, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class HeadsPlan(Part):
    """Side heads, anywhere along the blocks.

    An exit's loss is `supervised` · CE(ŷ, y) + `distilled` · T² · KL(softmax(z/T) ‖ softmax(ŷ/T)) + `pseudo` ·
    CE(ŷ, argmax z), where z are the final head's logits (PersEPhonEE, eq. 1; as printed its weights multiply nothing).
    With targets instead of labels it is `supervised` · ℓ(ŷ, y) + `distilled` · ℓ(ŷ, z), where ℓ is the task's loss.

    Attributes:
        mode: What trains: ``"exits-only"`` (the paper's) the exits alone; ``"with-tail"`` first the tail, with `joint`
            together with its exits, which then teaches all exits.
        exits: Exits from the input to the final head.
        supervised: Weight of the labels; excludes `pseudo`.
        distilled: Weight of the final head's softened answers.
        pseudo: Weight of the final head's hard answers; excludes `supervised`.
        temperature: T, above 0.
        tolerance: Accuracy on the calibration samples that leaving early may cost at most, in [0, 1].
        against: Reference of `tolerance`: the final head's accuracy, or the best that any threshold reaches.
        per_exit: Whether every exit has a threshold of its own.
        confidence: Confidence, in [0.5, 1), of the one-sided bound by which leaving early costs at most `tolerance` on
            the same samples. At 0.5 the difference itself counts.
        ridge: Penalty of linear exits that are solved for in closed form, in samples; 0 where exits train by steps.
            The weights of the losses are then those of the answers that are regressed on.
        global_weight: Weight of a global training sample in what exits begin with, where one of the user's has 1, in
            [0, 1]; 0 where they begin with nothing. For exits that train by steps it is 1.
        joint: Weight of the losses of exits beyond the cut in the tail's own loss (Shallow-Deep Networks, Kaya et al.,
            2019); 0 where the tail trains without exits. Only with ``"with-tail"``.
        flips: Whether half of a batch's maps are mirrored at random, alike at all exits, where exits train by steps.
            The final head's answers stay those to the sample as it is.
        gated: Whether each linear exit that learns labels has a gate of its own (`tuner.ridge.union`), by which samples
            like the mixed-in global ones continue to the layers after it; leaving early may then cost at most
            `tolerance` on those too. Without mixed-in samples it has no effect.
        drops: Whether an export leaves out what follows an exit at which all calibration samples have left.
    """

    mode: HeadsMode = "none"
    exits: tuple[Exit, ...] = ()
    supervised: float = 0.0
    distilled: float = 1.0
    pseudo: float = 0.0
    temperature: float = 4.0
    tolerance: float = 0.01
    against: Against = "original"
    per_exit: bool = False
    ridge: float = field(default=0.0, metadata=OPTIONAL)
    confidence: float = field(default=CHANCE, metadata=OPTIONAL)
    global_weight: float = field(default=0.0, metadata=OPTIONAL)
    joint: float = field(default=0.0, metadata=OPTIONAL)
    flips: bool = field(default=False, metadata=OPTIONAL)
    gated: bool = field(default=False, metadata=OPTIONAL)
    drops: bool = field(default=False, metadata=OPTIONAL)

    @property
    def along(self) -> tuple[Exit, ...]:
        """The exits along the blocks."""
        return tuple(exit_ for exit_ in self.exits if not exit_.size)

    @property
    def small(self) -> int:
        """Side of the smaller input that the first exit answers to, in pixels; 0 where none does."""
        return next((exit_.size for exit_ in self.exits if exit_.size), 0)

    @property
    def trains_norms(self) -> bool:
        """Whether exits train by steps that have batch norms."""
        return any(exit_.channels for exit_ in self.exits)


def head_rules(heads: HeadsPlan, num_blocks: int) -> Iterator[tuple[bool, str, object]]:
    """Yield whether each rule of side heads holds, the rule, and the value it is about."""
    weights = heads.supervised, heads.distilled, heads.pseudo
    places, channels = [exit_.block for exit_ in heads.exits], [exit_.channels for exit_ in heads.exits]
    on_blocks, wide = all(0 <= place < num_blocks for place in places), all(count >= 1 for count in channels)
    yield on_blocks, f"heads.exits must be on blocks 0 to {num_blocks - 1}", places
    yield wide or bool(heads.ridge), "heads.exits must have at least one channel each", channels
    rule = "heads.exits must have 0 channels where heads.ridge is above 0"
    yield not heads.ridge or not any(channels), rule, channels
    sized = [exit_ for exit_ in heads.exits if exit_.size]
    is_first = not sized or (sized == [*heads.exits[:1]] and sized[0].block == num_blocks - 1 and heads.ridge > 0)
    rule = f"the exit of a smaller input must be the first, before block {num_blocks - 1}, with heads.ridge above 0"
    yield is_first, rule, heads.exits
    yield 0 <= heads.ridge < math.inf, "heads.ridge must be at least 0", heads.ridge
    yield all(0 <= weight < math.inf for weight in weights), "the weights of heads' losses must be at least 0", weights
    yield any(weights), "one of heads.supervised, heads.distilled and heads.pseudo must be above 0", weights
    rule = "heads.supervised and heads.pseudo must not both be above 0, as each is the weight of a hard label"
    yield not (heads.supervised and heads.pseudo), rule, weights
    yield 0 < heads.temperature < math.inf, "heads.temperature must be above 0", heads.temperature
    yield 0 <= heads.tolerance <= 1, "heads.tolerance must be in [0, 1]", heads.tolerance
    yield CHANCE <= heads.confidence < 1, "heads.confidence must be at least 0.5 and below 1", heads.confidence
    yield 0 <= heads.global_weight <= 1, "heads.global_weight must be in [0, 1]", heads.global_weight
    yield 0 <= heads.joint < math.inf, "heads.joint must be at least 0", heads.joint


def effective_heads(heads: HeadsPlan, cut: int, task: TaskInfo) -> HeadsPlan:
    """Return the heads that can be trained, with idle settings at their defaults.

    Next to a tail that trains alone, exits are at or before its cut; if it trains with its exits, none begins with the
    global data. Without labels, their weight goes to distillation. Numbers as answers are neither hard nor softened.
    """
    is_deep = [exit_.block > cut and not exit_.size for exit_ in heads.exits]
    if heads.mode != "with-tail" or not any(is_deep):
        heads = replace(heads, joint=0.0)
    elif heads.joint:
        heads = replace(heads, global_weight=0.0)
    else:
        pairs = zip(heads.exits, is_deep, strict=True)
        heads = replace(heads, exits=tuple(exit_ for exit_, deep in pairs if not deep))
    if not heads.exits:
        return HeadsPlan()
    if not task.global_per_class:
        heads = replace(heads, global_weight=0.0)
    if heads.ridge or "flip" not in task.augment:
        heads = replace(heads, flips=False)
    if heads.supervised and not task.labelled:
        heads = replace(heads, supervised=0.0, distilled=heads.distilled or heads.supervised)
    if heads.distilled == 0:  # nothing else is softened by the temperature
        heads = replace(heads, temperature=HeadsPlan().temperature)
    heads = replace(heads, **task.targets.taught(heads.distilled, heads.pseudo))
    heads = _effective_gates(heads, task)
    if heads.ridge:  # probabilities are regressed on, softened or not: they have a place for one answer only
        return replace(heads, temperature=1.0)
    return replace(heads, global_weight=float(heads.global_weight > 0))


def effective_small(heads: HeadsPlan, *, takes: bool) -> HeadsPlan:
    """Return the heads with an exit of a smaller input where the model `takes` that and the exit is solved for."""
    if not heads.small:
        return heads
    if takes and heads.ridge:  # what the frozen blocks give to it is read alone
        return replace(heads, joint=0.0, global_weight=0.0)
    return replace(heads, exits=heads.along)


def _effective_gates(heads: HeadsPlan, task: TaskInfo) -> HeadsPlan:
    """Return the heads with gates where these can be solved for: from labels, and from samples that are mixed in."""
    if not heads.gated:
        return heads
    if heads.ridge and heads.supervised and task.global_per_class:
        return replace(heads, distilled=0.0, global_weight=0.0, ridge=GATED_RIDGE)
    return replace(heads, gated=False)


def head_parameters(in_shape: tuple[int, ...], channels: int, outputs: int) -> int:
    """Return a head's learnable scalars: two 3 × 3 convolutions with their norms, and a linear layer.

    Any input but a map (C, H, W) is read as a vector by two linear layers; with 0 channels there is the last one alone.
    """
    if not channels:
        return (linear_inputs(in_shape) + 1) * outputs
    last = channels * outputs + outputs
    if len(in_shape) != MAP_DIMENSIONS:
        return math.prod(in_shape) * channels + 2 * channels + last
    return 9 * channels * (in_shape[0] + channels) + 4 * channels + last


def head_macs(in_shape: tuple[int, ...], channels: int, outputs: int) -> int:
    """Return a head's multiply-accumulates per sample; arguments as for `head_parameters`."""
    if not channels:
        return linear_inputs(in_shape) * outputs
    if len(in_shape) != MAP_DIMENSIONS:
        return math.prod(in_shape) * channels + channels * outputs
    _, height, width = in_shape
    half = _half(height) * _half(width)
    quarter = _half(_half(height)) * _half(_half(width))
    return 9 * channels * (in_shape[0] * half + channels * quarter) + channels * outputs


def linear_inputs(in_shape: tuple[int, ...]) -> int:
    """Return how many values a linear exit reads: one of each channel of a map, all of anything else."""
    return in_shape[0] if len(in_shape) == MAP_DIMENSIONS else math.prod(in_shape)


def _half(extent: int) -> int:
    """Return the extent after a 3 × 3 convolution of stride 2 with padding 1."""
    return (extent + 1) // 2
