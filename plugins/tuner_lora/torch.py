"""Low-rank adapters as parametrisations of PyTorch's layers."""

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList, register_parametrization

from tuner.plugin import Tail


class LowRank(nn.Module):
    """W + s·BA: B is zero at the start, A is drawn from N(0, 1 / columns).

    Args:
        weight: W, of any shape; read as [rows, columns].
        rank: Rows of A, columns of B.
        scale: s.
        generator: Draws A.
    """

    def __init__(self, weight: torch.Tensor, rank: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        rows, columns = weight.flatten(1).shape
        self.down = nn.Parameter(torch.randn(rank, columns, generator=generator) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))
        self._scale = scale

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weight with its update."""
        return weight + (self.up @ self.down).view_as(weight) * self._scale


def adapt(tail: Tail, *, rank: int, scale: float, head: str) -> nn.Module:
    """Give every weight below the head an adapter, and freeze all else there; with `head` ``low-rank`` the head's too.

    The head's bias trains in either case.
    A weight of no more scalars than its adapter would have, and a grouped convolution's, stay as they are.
    """
    generator = torch.Generator().manual_seed(tail.seed)
    blocks = tail.blocks if head == "low-rank" else tail.blocks[:-1]
    modules = [
        (module, block is tail.blocks[-1])
        for block in blocks
        for layer in block.layers.values()
        for module in layer.modules()
    ]
    for module, last in modules:
        if isinstance(module, ParametrizationList):  # of an earlier edit
            continue
        for name, value in list(module.named_parameters(recurse=False)):
            value.requires_grad_(requires_grad=last and value.ndim == 1)
            if value.ndim == 1 or getattr(module, "groups", 1) > 1:
                continue
            if rank * sum(value.flatten(1).shape) < value.numel():
                register_parametrization(module, name, LowRank(value, rank, scale, generator))
    result: nn.Module = tail.module
    return result
