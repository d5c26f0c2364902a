"""The costs of a network by width, read from its layers."""

from collections.abc import Sequence

import torch
from torch import nn

from tuner.backends.torch.model.resize import CONVOLUTIONS
from tuner_growth.cost import FIXED, LayerCost, NetworkCost
from tuner_growth.torch.widths import Widths, weight_of


def network_cost(body: nn.Module, widths: Widths, example: torch.Tensor) -> NetworkCost:
    """Return the costs of a network's convolutions and linears by width.

    Args:
        body: The network, which is left in evaluation mode.
        widths: Its widths.
        example: Inputs, float32 [n, ...]; the first sample is run to count positions.
    """
    layers = [(name, module) for name, module in body.named_modules() if isinstance(module, (*CONVOLUTIONS, nn.Linear))]
    positions = _positions(body, layers, example[:1])
    growable = widths.growable
    output_group = {
        name: index for index, width in enumerate(growable) for name in (*width.producers, *width.depthwise)
    }
    input_group = {name: index for index, width in enumerate(growable) for name in width.consumers}
    costs = []
    for name, module in layers:
        weight = weight_of(body, name)
        into, out = input_group.get(name, FIXED), output_group.get(name, FIXED)
        inputs = weight.shape[1] if into == FIXED else len(weight_of(body, growable[into].name))
        # norms are counted once, with the first layer that produces their channels
        norms = growable[out].norms if out != FIXED and name == growable[out].name else ()
        scalars = sum(len(list(body.get_submodule(norm).parameters())) for norm in norms)
        costs.append(
            LayerCost(
                name,
                linear=isinstance(module, nn.Linear),
                out=out,
                into=into,
                out_width=len(weight),
                in_width=inputs,
                kernel=weight[0].numel() // inputs,
                positions=positions.get(name, 1),
                per_output=scalars + (module.bias is not None),
            )
        )
    return NetworkCost(tuple(costs))


def _positions(body: nn.Module, layers: Sequence[tuple[str, nn.Module]], sample: torch.Tensor) -> dict[str, int]:
    """Return how many places each layer is applied at for one sample."""
    positions: dict[str, int] = {}
    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: positions.update({name: output[0, 0].numel()}))
        for name, module in layers
    ]
    body.eval()
    with torch.no_grad():
        body(sample)
    for hook in hooks:
        hook.remove()
    return positions
