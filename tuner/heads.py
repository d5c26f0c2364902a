"""Side heads as data: where they sit, how wide they are, what they cost, what trains them and when a sample leaves.

Source: PersEPhonEE (HotMobile 2021); the head is MSDNet's intermediate classifier (Huang et al., 2018).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

HeadsMode = Literal["none", "exits-only", "with-tail"]
Against = Literal["original", "best"]
MAP_DIMENSIONS = 3


@dataclass(frozen=True, slots=True)
class Exit:
    """A side head that reads the output of the blocks before `block`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    block: int
    channels: int


@dataclass(frozen=True, slots=True)
class HeadsPlan:
    """Side heads, anywhere along the blocks.

    An exit's loss is `supervised` · CE(ŷ, y) + `distilled` · T² · KL(softmax(z/T) ‖ softmax(ŷ/T)) + `pseudo` ·
    CE(ŷ, argmax z), where z are the final head's logits (PersEPhonEE, eq. 1; as printed its weights multiply nothing).

    Attributes:
        mode: `exits-only`, the paper's, trains nothing else; `with-tail`, a hybrid of this project, trains the tail
            first, which then is the exits' teacher.
        exits: From the input to the final head.
        supervised: Weight of the labels; excludes `pseudo`.
        distilled: Weight of the final head's softened answers.
        pseudo: Weight of the final head's hard answers; excludes `supervised`.
        temperature: T.
        tolerance: Accuracy on the calibration samples that leaving early may cost at most.
        against: What that is measured from: the final head's accuracy, or the best that any threshold reaches.
        per_exit: Whether every exit has a threshold of its own.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    mode: HeadsMode = "none"
    exits: tuple[Exit, ...] = ()
    supervised: float = 0.0
    distilled: float = 1.0
    pseudo: float = 0.0
    temperature: float = 4.0
    tolerance: float = 0.01
    against: Against = "original"
    per_exit: bool = False

    def say(self) -> str:
        """Return the heads as the end of a plan's sentence; empty where there are none."""
        if not self.exits:
            return ""
        parts = (("labels", self.supervised), ("own answers", self.pseudo), ("distillation", self.distilled))
        taught = " and ".join(name for name, weight in parts if weight)
        plural = "" if len(self.exits) == 1 else "s"
        return f", {len(self.exits)} exit{plural} ({self.mode}; taught by {taught})"


def head_rules(heads: HeadsPlan, blocks: int) -> tuple[tuple[bool, str, object], ...]:
    """Return what heads on a model of so many blocks keep to: whether it holds, the rule, the value."""
    weights = heads.supervised, heads.distilled, heads.pseudo
    return (
        (all(0 <= one.block <= blocks for one in heads.exits), "exits sit on blocks", heads),
        (all(one.channels >= 1 for one in heads.exits), "heads.exits have at least one channel", heads),
        (all(0 <= weight < math.inf for weight in weights), "the weights of heads' losses are at least 0", weights),
        (any(weights), "one of heads.supervised, heads.distilled and heads.pseudo is above 0", weights),
        (
            not (heads.supervised and heads.pseudo),
            "of heads.supervised and heads.pseudo one is 0: they are two answers to one question",
            weights,
        ),
        (0 < heads.temperature < math.inf, "heads.temperature is above 0", heads.temperature),
        (0 <= heads.tolerance <= 1, "heads.tolerance is in [0, 1]", heads.tolerance),
    )


def settled(heads: HeadsPlan, split: int, *, labelled: bool) -> HeadsPlan:
    """Return the heads that can be trained: below the tail where that trains too, without labels where there are none.

    Args:
        heads: As a strategy wrote them.
        split: First block of the tail.
        labelled: Whether the local samples have labels.
    """
    if heads.mode == "with-tail":
        heads = replace(heads, exits=tuple(one for one in heads.exits if one.block <= split))
    if not heads.exits:
        return HeadsPlan()
    if heads.supervised and not labelled:
        return replace(heads, supervised=0.0, distilled=heads.distilled or heads.supervised)
    return heads


def head_parameters(in_shape: tuple[int, ...], channels: int, outputs: int) -> int:
    """Return a head's learnable scalars: two 3 × 3 convolutions with their norms, and a linear layer.

    Args:
        in_shape: Of what it reads, per sample; anything but a map (C, H, W) is read as a vector by two linear layers.
        channels: Of both convolutions.
        outputs: Of the linear layer.
    """
    last = channels * outputs + outputs
    if len(in_shape) != MAP_DIMENSIONS:
        return math.prod(in_shape) * channels + 2 * channels + last
    return 9 * channels * (in_shape[0] + channels) + 4 * channels + last


def head_macs(in_shape: tuple[int, ...], channels: int, outputs: int) -> int:
    """Return a head's multiply-accumulates per sample; arguments as for `head_parameters`."""
    if len(in_shape) != MAP_DIMENSIONS:
        return math.prod(in_shape) * channels + channels * outputs
    _, height, width = in_shape
    half = _half(height) * _half(width)
    quarter = _half(_half(height)) * _half(_half(width))
    return 9 * channels * (in_shape[0] * half + channels * quarter) + channels * outputs


def _half(size: int) -> int:
    """Return the extent after a 3 × 3 convolution of stride 2 with padding 1."""
    return (size + 1) // 2
