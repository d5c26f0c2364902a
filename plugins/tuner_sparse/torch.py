"""Weights of which some channels train, as parametrisations of PyTorch's layers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList, register_parametrization

from tuner.plugin import Tail

#: Fixed batches that saliency is measured on.
BATCHES = 4
#: What a scalar that trains takes next to itself: its gradient, and two moments of an optimiser.
COPIES = 3


class Partly(nn.Module):
    """W, of which the slices of some channels are the sum with what trains, D; zero at the start.

    Args:
        weight: W.
        dimension: Dimension of the channels: 1, the inputs; 0 for a grouped convolution, whose inputs are its outputs.
        channels: int64 [n], ascending.
    """

    channels: torch.Tensor

    def __init__(self, weight: torch.Tensor, dimension: int, channels: torch.Tensor) -> None:
        super().__init__()
        self._dimension = dimension
        self.register_buffer("channels", channels)
        self.delta = nn.Parameter(torch.zeros_like(weight.index_select(dimension, channels)))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weight with its update."""
        return weight.index_add(self._dimension, self.channels, self.delta)


def update_in_part(tail: Tail, *, share: float) -> nn.Module:
    """Let the most salient channels of the weights below the head train, as many as the share of bytes allows.

    Biases train too; norms' scales do not.
    """
    modules = [layer for block in tail.blocks[:-1] for one in block.layers.values() for layer in one.modules()]
    modules = [module for module in modules if not isinstance(module, ParametrizationList)]  # of an earlier edit
    weights = [Weight(module, name) for module in modules for name, value in _own(module) if value.ndim > 1]
    chosen = _most_salient(tail, weights, share)
    for module in modules:
        for name, value in _own(module):
            value.requires_grad_(name.endswith("bias"))
    for weight, channels in zip(weights, chosen, strict=True):
        if len(channels):
            register_parametrization(weight.module, weight.name, Partly(weight.value, weight.dimension, channels))
    result: nn.Module = tail.module
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A weight of a layer, by its name there."""

    module: nn.Module
    name: str

    @property
    def value(self) -> nn.Parameter:
        """The weight itself."""
        return self.module.get_parameter(self.name)

    @property
    def dimension(self) -> int:
        """Dimension of its channels: 1, the inputs; 0 where these come first, as in grouped or transposed ones."""
        return 0 if getattr(self.module, "groups", 1) > 1 or getattr(self.module, "transposed", False) else 1


def _own(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(module.named_parameters(recurse=False))


def _most_salient(tail: Tail, weights: list[Weight], share: float) -> list[torch.Tensor]:
    """Return the channels of each weight that train, int64 and ascending: those of most saliency a byte.

    A channel's bytes are those of its slice of the weight, of what an optimiser keeps of it, and of the layer's input,
    which is stored for a batch.
    """
    values, inputs = [weight.value for weight in weights], dict[nn.Module, int]()
    hooks = [weight.module.register_forward_pre_hook(_noting(inputs)) for weight in weights]
    totals = [torch.zeros_like(value) for value in values]
    for number in range(BATCHES):
        gradients = torch.autograd.grad(tail.probe(number), values, allow_unused=True)
        pairs = zip(totals, gradients, strict=True)
        totals = [total if gradient is None else total + gradient for total, gradient in pairs]
    for hook in hooks:
        hook.remove()
    saliency, sizes = [], []
    for weight, total in zip(weights, totals, strict=True):
        along = (total * weight.value.detach()).abs().transpose(0, weight.dimension).flatten(1)
        stored = tail.plan.recipe.part_size * inputs.get(weight.module, 0) / len(along)  # attention calls no layer
        sizes.append(torch.full((len(along),), (1 + COPIES) * along.shape[1] + stored))
        saliency.append(along.sum(1))
    worth, size = torch.cat(saliency), torch.cat(sizes)
    order = (worth / size).argsort(descending=True, stable=True)
    taken = torch.zeros(len(order), dtype=torch.bool)
    taken[order[size[order].cumsum(0) <= share * size.sum()]] = True
    return [part.nonzero().flatten() for part in torch.split(taken, [len(own) for own in saliency])]


def _noting(inputs: dict[nn.Module, int]) -> Callable[[nn.Module, Any], None]:
    """Return a hook that notes the scalars of one sample's input of a layer."""

    def note(module: nn.Module, args: Any) -> None:
        inputs[module] = args[0][0].numel()

    return note
