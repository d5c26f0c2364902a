"""LeNet for signals and for digits, of any width.

Source: MDLdroidLite, Tables 2 and 4. Widths are arguments, in the order of the layers, so that growth can start them
small: ``(2, 5, 10)`` is the paper's tiny start, ``(20, 50, 500)`` its full configuration.
"""

from torch import nn

from tuner.errors import TaskError

WIDTHS = (20, 50, 500)
_SIGNAL_KERNEL, _IMAGE_KERNEL, _POOL = 14, 5, 2
_IMAGE_SIDE = 28


def lenet_1d(channels: int = 8, time: int = 100, outputs: int = 6, widths: tuple[int, int, int] = WIDTHS) -> nn.Module:
    """Return four blocks: two convolutions over 14 samples, each with its pool, and two linear layers.

    Args:
        channels: Channels of the signal.
        time: Length of a window, in samples; at least 43.
        outputs: Number of classes.
        widths: Outputs of the first convolution, of the second, and of the first linear layer.

    Returns:
        A module from float32 [n, channels, time] to [n, outputs].

    Raises:
        TaskError: A width below 1, or a window too short for two convolutions with pools.
    """
    first, second, features = _checked("lenet_1d", widths)
    length = _pooled(_pooled(time, _SIGNAL_KERNEL), _SIGNAL_KERNEL)
    if length < 1:
        raise TaskError(f"lenet_1d: windows must have at least 43 samples, got {time}: give a longer input.window")
    return nn.Sequential(
        nn.Conv1d(channels, first, _SIGNAL_KERNEL),
        nn.ReLU(),
        nn.MaxPool1d(_POOL),
        nn.Conv1d(first, second, _SIGNAL_KERNEL),
        nn.ReLU(),
        nn.MaxPool1d(_POOL),
        nn.Flatten(),
        nn.Linear(second * length, features),
        nn.ReLU(),
        nn.Linear(features, outputs),
    )


def lenet_2d(outputs: int = 10, widths: tuple[int, int, int] = WIDTHS) -> nn.Module:
    """Return four blocks: two convolutions of 5 × 5, each with its pool, and two linear layers.

    Args:
        outputs: Number of classes.
        widths: Outputs of the first convolution, of the second, and of the first linear layer.

    Returns:
        A module from float32 [n, 1, 28, 28] to [n, outputs].

    Raises:
        TaskError: A width below 1.
    """
    first, second, features = _checked("lenet_2d", widths)
    side = _pooled(_pooled(_IMAGE_SIDE, _IMAGE_KERNEL), _IMAGE_KERNEL)
    return nn.Sequential(
        nn.Conv2d(1, first, _IMAGE_KERNEL),
        nn.ReLU(),
        nn.MaxPool2d(_POOL),
        nn.Conv2d(first, second, _IMAGE_KERNEL),
        nn.ReLU(),
        nn.MaxPool2d(_POOL),
        nn.Flatten(),
        nn.Linear(second * side * side, features),
        nn.ReLU(),
        nn.Linear(features, outputs),
    )


def _pooled(extent: int, kernel: int) -> int:
    """Return the extent of an axis after a convolution without padding and a pool by two."""
    return (extent - kernel + 1) // _POOL


def _checked(name: str, widths: tuple[int, int, int]) -> tuple[int, int, int]:
    if len(widths) != len(WIDTHS) or min(widths) < 1:
        raise TaskError(f"{name}: widths must be three numbers of at least 1, got {list(widths)}: e.g. {list(WIDTHS)}")
    return widths
