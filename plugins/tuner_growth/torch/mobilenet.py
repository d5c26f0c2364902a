"""MobileNet for signals, of any width.

Source: MDLdroidLite, Tables 1, 2 and 5. Two of its entries are corrected, as the printed counts demand: the third
depthwise convolution has stride 2, and the network has no norms, and a bias in its last layer only.
"""

from torch import nn

from tuner.errors import TaskError

WIDTHS = (32, 64, 128, 256)
_STRIDES = (1, 2, 2)


def mobilenet_1d(
    channels: int = 8,
    time: int = 100,
    kernel: int = 12,
    outputs: int = 6,
    widths: tuple[int, int, int, int] = WIDTHS,
    norms: bool = False,
) -> nn.Module:
    """Return eight blocks: a convolution of stride 2, three depthwise and pointwise pairs, and a linear head.

    Args:
        channels: Channels of the signal.
        time: Length of a window, in samples.
        kernel: Length of the first and the depthwise convolutions, in samples; the paper has 12 and 14.
        outputs: Number of classes.
        widths: Outputs of the first convolution and of the three pointwise ones.
        norms: Whether a batch norm follows every convolution, as in MobileNets for images. The paper's network has
            none; with them it recognises another session of a person's muscle signals better.

    Returns:
        A module from float32 [n, channels, time] to [n, outputs].

    Raises:
        TaskError: A width below 1, or a window too short for four convolutions without padding.
    """
    if len(widths) != len(WIDTHS) or min(widths) < 1:
        raise TaskError(
            f"mobilenet_1d: widths must be four numbers of at least 1, got {list(widths)}: e.g. {list(WIDTHS)}"
        )
    length = time
    for stride in (2, *_STRIDES):
        length = (length - kernel) // stride + 1
    if length < 1:
        raise TaskError(
            f"mobilenet_1d: windows of {time} samples are too short for a kernel of {kernel}: "
            "give a longer input.window or a smaller kernel"
        )
    layers = _convolution(nn.Conv1d(channels, widths[0], kernel, 2, bias=False), norms=norms)
    for inputs, width, stride in zip(widths, widths[1:], _STRIDES, strict=False):
        layers += _convolution(nn.Conv1d(inputs, inputs, kernel, stride, groups=inputs, bias=False), norms=norms)
        layers += _convolution(nn.Conv1d(inputs, width, 1, bias=False), norms=norms)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(widths[-1], outputs))


def _convolution(layer: nn.Conv1d, *, norms: bool) -> list[nn.Module]:
    """Return a convolution, its norm if it has one, and its activation."""
    return [layer, *([nn.BatchNorm1d(layer.out_channels)] if norms else []), nn.ReLU()]
