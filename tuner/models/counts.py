"""Parameters and FLOPs of a network, counted by the rule of the tables that growth is compared with."""

import math
from typing import Any

import torch
from torch import nn

_WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Linear)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)


def parameters(model: nn.Module) -> int:
    """Return the number of learnable values, to which the statistics of norms do not belong."""
    return sum(parameter.numel() for parameter in model.parameters())


def flops(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Count one sample's forward pass: 2 × (multiply-accumulates + bias adds) + outputs of ReLU + inputs of pools.

    Other layers count nothing. This rule gives the FLOPs of MDLdroidLite's Tables 4 and 5.

    Args:
        model: Any network; it is run once in evaluation mode, on zeros.
        shape: Shape of one sample, without the batch.
    """
    total = 0

    def count(module: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        nonlocal total
        if isinstance(module, _WEIGHTED):
            macs = math.prod(module.weight.shape[1:])  # of one output value
            total += 2 * output.numel() * (macs + (module.bias is not None))
        elif isinstance(module, nn.ReLU):
            total += output.numel()
        elif isinstance(module, _POOLS):
            total += inputs[0].numel()

    handles = [module.register_forward_hook(count) for module in model.modules()]
    training = model.training
    try:
        with torch.inference_mode():
            model.eval()(torch.zeros(1, *shape))
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return total
