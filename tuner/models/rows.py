"""A small network for samples without neighbours, such as the rows of a table."""

from torch import nn

from tuner.errors import TaskError

WIDTHS = (128, 64)


def mlp(inputs: int, outputs: int, widths: tuple[int, int] = WIDTHS) -> nn.Module:
    """Return three blocks of one linear layer each, on all values of a sample.

    Args:
        inputs: Number of values of a sample.
        outputs: Number of classes.
        widths: Outputs of the first two layers.

    Returns:
        A module from float32 [n, ...] to [n, outputs].

    Raises:
        TaskError: A number is below 1.
    """
    first, second = widths
    if min(inputs, outputs, first, second) < 1:
        raise TaskError(f"mlp: inputs, outputs and widths must be at least 1, got {inputs}, {outputs}, {list(widths)}")
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Linear(second, outputs),
    )
