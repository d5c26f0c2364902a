"""The optimisers of a recipe: PyTorch's, and those that plugins add."""

from typing import Any

import torch
from torch import nn

from tuner.backends.extensions import Extensions, OptimiserError
from tuner.errors import TrainingError, first_line, place_of
from tuner.plan.parts import RecipePlan


def optimiser(
    parameters: list[nn.Parameter], recipe: RecipePlan, extensions: Extensions | None = None
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser.

    Args:
        parameters: What trains.
        recipe: Its optimiser, the settings of that, learning rate and weight decay.
        extensions: What plugins add.

    Raises:
        OptimiserError: A plugin's factory raised, or returned something else.
        TrainingError: No plugin realises it.
    """
    added = {} if extensions is None else extensions.optimisers
    if recipe.optimiser in added:
        try:
            made = added[recipe.optimiser](parameters, recipe)
        except Exception as error:  # a plugin's factory may raise anything
            raise OptimiserError(recipe.optimiser, f"raised {first_line(error)}{place_of(error)}") from error
        if not isinstance(made, torch.optim.Optimizer):
            rule = f"its factory must return a torch.optim.Optimizer, but it returned {made!r}"
            raise OptimiserError(recipe.optimiser, rule)
        return made
    shared: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(parameters, momentum=recipe.momentum, **shared)
    shared |= {"betas": (recipe.beta1, recipe.beta2), "eps": recipe.epsilon}
    if recipe.optimiser == "adam":
        return torch.optim.Adam(parameters, **shared)
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(parameters, **shared)
    raise TrainingError(f"no installed plugin realises optimiser {recipe.optimiser!r}: see `tuner plugins`")


def set_rate(target: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in target.param_groups:
        group["lr"] = rate
