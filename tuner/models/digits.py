"""A small convolutional network for 8 × 8 digits."""

from torch import nn


def build(outputs: int = 7) -> nn.Module:
    """Return four blocks: three convolutions and a linear head.

    Args:
        outputs: Number of classes.

    Returns:
        A module from float32 [n, 1, 8, 8] to [n, outputs].
    """

    def convolution(inputs: int, channels: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())

    return nn.Sequential(
        convolution(1, 16),
        convolution(16, 32),
        nn.MaxPool2d(2),
        convolution(32, 64),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, outputs),
    )
