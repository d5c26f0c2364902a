"""The bytes of training at other widths; computed anew before every growth, as each changes what is kept."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from tuner.backends.lowering import Training
from tuner.backends.torch.model.blocks import saved_bytes
from tuner.backends.torch.model.resize import install
from tuner.planner.device import FLOAT_BYTES, state_copies
from tuner_growth.cost import NetworkCost
from tuner_growth.torch.widths import Width, selected, weight_of

#: Memory of backward relative to what forward keeps for it: derivatives come on top.
BACKWARD = 1.5


def training_bytes(
    body: nn.Module, widths: Sequence[Width], cost: NetworkCost, training: Training
) -> Callable[[Sequence[int]], int]:
    """Return the bytes of a step as a function of the widths, without what does not depend on them.

    Weights count with their gradients and the optimiser's state. What forward keeps for backward is a sum of maps, each
    as wide as one group or of a fixed width: its bytes are linear in the widths, and one more channel of each group
    gives the slope.

    Args:
        body: Network at its current widths; not changed.
        widths: Its growable widths.
        cost: Its parameters by width.
        training: Its recipe and an example.
    """
    sizes = [len(weight_of(body, width.name)) for width in widths]
    base = _kept(body, training.example)
    slopes = []  # bytes of one more channel of each width
    for width, size in zip(widths, sizes, strict=True):
        wider = copy.deepcopy(body)
        install(wider, selected(wider, replace(width, size=size), [*range(size), 0]))
        slopes.append(_kept(wider, training.example) - base)
    copies = 1 + state_copies(training.recipe.optimiser)

    def needed(wanted: Sequence[int]) -> int:
        kept = base + sum(slope * (to - size) for slope, to, size in zip(slopes, wanted, sizes, strict=True))
        return math.ceil(FLOAT_BYTES * copies * cost.parameters(wanted) + BACKWARD * training.recipe.part_size * kept)

    return needed


def _kept(body: nn.Module, example: torch.Tensor) -> int:
    """Return the bytes that one sample's forward pass keeps."""
    return saved_bytes(copy.deepcopy(body).eval(), example[:1])
