"""Side heads as PyTorch modules."""

from collections.abc import Sequence

import torch
from torch import nn

from tuner.backends.torch.model.graph.layout import channels_last
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.heads import linear_inputs
from tuner.plan.info import MAP_DIMENSIONS
from tuner.plan.trial import TrialPlan


def head(in_shape: tuple[int, ...], channels: int, outputs: int) -> nn.Sequential:
    """Return MSDNet's intermediate classifier: two 3 × 3 convolutions of stride 2, pooling, a linear layer.

    The pooling is global, so that a map of any size will do. What is no map is read as a vector by two linear layers.

    Without channels between its layers it is a linear layer alone, on the mean of a map.

    Source: Huang et al., 2018; PersEPhonEE's published ratios fit 128 channels and global pooling.
    """
    if not channels:
        pooling = [nn.AdaptiveAvgPool2d(1)] if len(in_shape) == MAP_DIMENSIONS else []
        return nn.Sequential(*pooling, nn.Flatten(), nn.Linear(linear_inputs(in_shape), outputs))
    if len(in_shape) != MAP_DIMENSIONS:
        values = int(torch.Size(in_shape).numel())
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(values, channels, bias=False),
            nn.BatchNorm1d(channels),
            nn.ReLU(),
            nn.Linear(channels, outputs),
        )
    return nn.Sequential(
        *_halving(in_shape[0], channels),
        *_halving(channels, channels),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, outputs),
    )


def _halving(inputs: int, channels: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, channels, 3, stride=2, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(channels), nn.ReLU()


def build_heads(plan: TrialPlan) -> nn.ModuleList:
    """Return the plan's side heads, untrained."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    return nn.ModuleList(
        channels_last(head(blocks[place.block].in_shape, place.channels, outputs)) for place in plan.heads.exits
    )


class SmallerInput(nn.Module):
    """The blocks of a model on its input at a smaller size, and the exit after them.

    Args:
        size: Side in pixels.
        body: The blocks.
        head: The exit.
    """

    def __init__(self, size: int, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.size, self.body, self.head = size, body, head

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return logits [n, outputs] of float32 [n, 3, side, side]; resized as the samples are that it learned from."""
        small = nn.functional.interpolate(value, size=(self.size, self.size), mode="bilinear", antialias=True)
        logits: torch.Tensor = self.head(self.body(small))
        return logits


def complete(model: OpenModel, plan: TrialPlan, heads: Sequence[nn.Module] | nn.ModuleList) -> list[nn.Module]:
    """Return what answers at each of a plan's exits: its head, after the blocks where it has an input of its own."""
    return [
        SmallerInput(place.size, model.prefix(place.block).eval(), head) if place.size else head
        for place, head in zip(plan.heads.exits, heads, strict=True)
    ]


def learned(side: nn.Module) -> nn.Module:
    """Return the part that is learned of what answers at an exit: its head."""
    return side.head if isinstance(side, SmallerInput) else side
