"""What training takes at other widths, in bytes; found anew before every growth, as each changes what is kept."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from tuner.backends.torch.evolving import Training
from tuner.backends.torch.model import saved_bytes
from tuner.backends.torch.widths import Width, install, selected, weight_of
from tuner.planner.cost import FLOAT_BYTES, STATE_COPIES
from tuner_growth.cost import NetworkCost

#: What backward has in memory at once, over what forward keeps for it: derivatives come on top.
BACKWARD = 1.5


def training_bytes(
    body: nn.Module, widths: Sequence[Width], cost: NetworkCost, training: Training
) -> Callable[[Sequence[int]], int]:
    """Return the bytes of a step as a function of the widths, beside what does not depend on them.

    Weights count with their gradients and the optimiser's state. What forward keeps for backward is a sum of maps, each
    as wide as one group or of a fixed width, so that one more channel of each group tells the rest.

    Args:
        body: The network as it is; not changed.
        widths: Its growable groups.
        cost: Its parameters by width.
        training: Its recipe and an example.
    """
    sizes = [len(weight_of(body, width.name)) for width in widths]
    base = _kept(body, training.example)
    each = []
    for width, size in zip(widths, sizes, strict=True):
        wider = copy.deepcopy(body)
        install(wider, selected(wider, replace(width, size=size), [*range(size), 0]))
        each.append(_kept(wider, training.example) - base)
    copies = 1 + STATE_COPIES[training.recipe.optimiser]

    def needed(at: Sequence[int]) -> int:
        kept = base + sum(more * (now - size) for more, now, size in zip(each, at, sizes, strict=True))
        return math.ceil(FLOAT_BYTES * copies * cost.parameters(at) + BACKWARD * training.recipe.part_size * kept)

    return needed


def _kept(body: nn.Module, example: torch.Tensor) -> int:
    """Return the bytes that one sample's forward pass keeps."""
    return saved_bytes(copy.deepcopy(body).eval(), example[:1])
