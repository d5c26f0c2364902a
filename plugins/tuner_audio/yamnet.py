"""YAMNet, a MobileNet for log-mel patches, as deep as wanted.

Source: YAMNet of Google's AudioSet team; its first six layers are YAMNet-256 of STMicroelectronics' model zoo, whose
weights fit (`Yamnet.translated`). Padding is TensorFlow's, which adds more at the end.
"""

from collections.abc import Mapping

import torch
from torch import nn

from tuner.errors import TaskError

#: Of every layer after the first: its stride and its channels.
LAYERS = (
    (1, 64),
    (2, 128),
    (1, 128),
    (2, 256),
    (1, 256),
    (2, 512),
    (1, 512),
    (1, 512),
    (1, 512),
    (1, 512),
    (1, 512),
    (2, 1024),
    (1, 1024),
)
FIRST_CHANNELS = 32
_EPSILON = 1e-4


class Yamnet(nn.Sequential):
    """The network, by the names of the published weights."""

    def translated(self, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return published weights by the names that they have here: there, a norm is a part of its convolution."""
        return {name.replace(".bn.", "_norm."): value for name, value in state.items()}


def _layer(*convolutions: tuple[str, nn.Conv2d]) -> nn.Sequential:
    """Return convolutions, each with its norm and ReLU, and TensorFlow's padding before those of stride 2."""
    layer = nn.Sequential()
    for name, convolution in convolutions:
        if convolution.stride == (2, 2):  # of even sizes, it needs one row more at the end only
            layer.add_module(f"{name}_pad", nn.ZeroPad2d((0, 1, 0, 1)))
        layer.add_module(name, convolution)
        layer.add_module(f"{name}_norm", nn.BatchNorm2d(convolution.out_channels, eps=_EPSILON))
        layer.add_module(f"{name}_relu", nn.ReLU())
    return layer


def _convolution(inputs: int, outputs: int, stride: int, groups: int = 1) -> nn.Conv2d:
    padding = 1 if stride == 1 else 0
    return nn.Conv2d(inputs, outputs, 3, stride, padding, groups=groups, bias=False)


def yamnet(outputs: int, layers: int = 14) -> nn.Module:
    """Return the first layers of YAMNet, the mean over the map, and a linear head.

    Args:
        outputs: Number of classes.
        layers: Number of layers, from 2 to 14.

    Returns:
        A module from log-mel patches, float32 [n, 1, 64, 96], to [n, outputs].

    Raises:
        TaskError: There are not so many layers.
    """
    if not 2 <= layers <= len(LAYERS) + 1:  # noqa: PLR2004 - a model of one layer has no cut
        raise TaskError(f"yamnet: layers must be from 2 to {len(LAYERS) + 1}, got {layers}")
    model = Yamnet()
    model.add_module("layer1", _layer(("conv", _convolution(1, FIRST_CHANNELS, 2))))
    channels = FIRST_CHANNELS
    for number, (stride, width) in enumerate(LAYERS[: layers - 1], start=2):
        depthwise = ("depthwise_conv", _convolution(channels, channels, stride, channels))
        pointwise = ("pointwise_conv", nn.Conv2d(channels, width, 1, bias=False))
        model.add_module(f"layer{number}", _layer(depthwise, pointwise))
        channels = width
    model.add_module("pool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("head", nn.Linear(channels, outputs))
    return model


def yamnet_256(outputs: int) -> nn.Module:
    """Return YAMNet-256: six layers, 256 features, 131,000 parameters without the head.

    Args:
        outputs: Number of classes.
    """
    return yamnet(outputs, layers=6)
