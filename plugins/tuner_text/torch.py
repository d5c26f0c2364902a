"""What is trained on the features of texts: a linear head, and two blocks before it that change nothing at first."""

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Adds to features [n, size] what two layers of them make, through `width` values: nothing until they train."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(size, width), nn.Linear(width, size)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the sum, float32 [n, size]."""
        changed: torch.Tensor = features + self.outer(functional.relu(self.inner(features)))
        return changed


def classifier(inputs: int, outputs: int, width: int = 64) -> nn.Module:
    """Return two residual blocks and a linear head, which alone is logistic regression on the features.

    Args:
        inputs: Number of features of a text.
        outputs: Number of classes.
        width: Width of the blocks.

    Returns:
        A module from float32 [n, inputs] to [n, outputs].
    """
    return nn.Sequential(Residual(inputs, width), Residual(inputs, width), nn.Linear(inputs, outputs))
