"""VGG-11 with batch norm for images of 32 × 32, of any width (MDLdroidLite, section VI; CIFAR-10)."""

from torch import nn

from tuner.errors import TaskError

WIDTHS = (64, 128, 256, 256, 512, 512, 512, 512)
_POOLED = frozenset({0, 1, 3, 5, 7})  # convolutions that a pool follows: 32 -> 16 -> 8 -> 4 -> 2 -> 1


def vgg_11(
    channels: int = 3, outputs: int = 10, widths: tuple[int, int, int, int, int, int, int, int] = WIDTHS
) -> nn.Module:
    """Return nine blocks: eight 3 × 3 convolutions with their norms, and a linear head.

    Args:
        channels: Channels of the image.
        outputs: Number of classes.
        widths: Outputs of the convolutions.

    Returns:
        A module from float32 [n, channels, 32, 32] to [n, outputs].

    Raises:
        TaskError: A width below 1.
    """
    if len(widths) != len(WIDTHS) or min(widths) < 1:
        raise TaskError(f"vgg_11: widths must be eight numbers of at least 1, got {list(widths)}: e.g. {list(WIDTHS)}")
    layers: list[nn.Module] = []
    for place, (inputs, width) in enumerate(zip((channels, *widths), widths, strict=False)):
        layers.append(nn.Sequential(nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()))
        if place in _POOLED:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1], outputs))
