"""The narrow network that growth starts from: its sizes, the channels it keeps, or fresh weights."""

import torch
from torch import nn

from tuner.backends.torch.model.resize import BATCH_NORMS, CONVOLUTIONS
from tuner_growth.torch.widths import Width, weight_of

#: A linear layer starts at this part of the start fraction (2 % instead of 10 % in the paper).
LINEAR_SHARE = 0.2


def start_size(body: nn.Module, width: Width, start: float) -> int:
    """Return a width's size at the start: its part rounded down, at least 1, and 2 where a depthwise layer shares it.

    A depthwise convolution of one channel would be a plain one.
    """
    linear = isinstance(body.get_submodule(width.name), nn.Linear)
    part = start * LINEAR_SHARE if linear else start
    return min(width.size, max(2 if width.depthwise else 1, int(part * width.size + 1e-9)))


def strongest(body: nn.Module, width: Width, size: int) -> list[int]:
    """Return the channels with the largest weights, summed over the layers that produce them, in ascending order."""
    sums = [weight_of(body, name).abs().flatten(1).sum(dim=1) for name in width.producers]
    strength = torch.stack(sums).sum(dim=0)
    return sorted(strength.argsort(descending=True, stable=True)[:size].tolist())


def refresh(body: nn.Module) -> None:
    """Give every layer fresh weights: Xavier-uniform ones, biases of 0, norms as they are made.

    Depthwise convolutions get He-uniform ones. Xavier's fan counts all of their channels, but a kernel reads one: from
    [3-6-12-25], MobileNet-1D's three would keep 0.50, 0.29 and 0.15 of the variance. He's weights everywhere made a
    LeNet on digits learn slower in five of five seeds.
    """
    for module in body.modules():
        if isinstance(module, (*CONVOLUTIONS, nn.Linear)):
            if getattr(module, "groups", 1) > 1:
                nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            else:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, BATCH_NORMS):
            module.reset_parameters()
