"""A network for the contracts: four blocks with batch norms, a depthwise convolution, ReLU6 and a linear head."""

import torch
from torch import nn


def build(outputs: int = 5) -> nn.Module:
    """Return a module from float32 [n, 3, 8, 8] to [n, outputs], with the same weights every time.

    Args:
        outputs: Number of classes.
    """
    generator = torch.Generator().manual_seed(0)

    def block(inputs: int, channels: int, kernel: int, groups: int = 1) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, channels, kernel, padding=kernel // 2, groups=groups, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU6())

    network = nn.Sequential(
        block(3, 8, 3),
        block(8, 8, 3, groups=8),
        block(8, 16, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, outputs),
    )
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if not name.endswith(("running_var", "num_batches_tracked")):
                scale = 0.5 / max(1, value[0].numel()) ** 0.5
                norm = 1.0 if value.ndim == 1 and name.endswith("weight") else 0.0
                value.copy_(norm + scale * torch.randn(value.shape, generator=generator))
    return network
