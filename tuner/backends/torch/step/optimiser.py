"""The optimisers of a recipe."""

from typing import Any

import torch
from torch import nn

from tuner.plan.parts import RecipePlan

MOMENTUM = 0.9  # of SGD


def optimiser(parameters: list[nn.Parameter], recipe: RecipePlan) -> torch.optim.Optimizer:
    """Return the recipe's optimiser."""
    shared: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(parameters, momentum=MOMENTUM, **shared)
    if recipe.optimiser == "adam":
        return torch.optim.Adam(parameters, **shared)
    return torch.optim.AdamW(parameters, **shared)


def set_rate(target: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in target.param_groups:
        group["lr"] = rate
