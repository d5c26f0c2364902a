"""The optimiser's update as part of a traced step."""

from collections.abc import Mapping, Sequence

import torch

from tuner.plan.parts import RecipePlan

#: Optimiser state by recipe, one tensor of the parameter's shape each.
STATES: Mapping[str, tuple[str, ...]] = {"sgd": ("momentum",), "adam": ("mean", "square"), "adamw": ("mean", "square")}


def bias_corrected(recipe: RecipePlan, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Adam's step size and the root of its second bias correction; of SGD the learning rate and 1.

    Args:
        recipe: Its optimiser.
        inputs: The step's learning rate and count, by name.
    """
    rate = inputs["learning_rate"]
    if recipe.optimiser == "sgd":
        return rate, torch.ones_like(rate)
    count = inputs["step_count"].double()  # 1 - 0.999 in float32 is off by 6e-5
    size = rate.double() / (1 - torch.pow(recipe.beta1, count))
    return size.float(), torch.sqrt(1 - torch.pow(recipe.beta2, count)).float()


def updated(
    recipe: RecipePlan,
    old: Sequence[torch.Tensor],
    gradient: torch.Tensor,
    rate: torch.Tensor,
    corrected: tuple[torch.Tensor, torch.Tensor],
) -> list[torch.Tensor]:
    """Return the next parameter and state, by the formulas of torch.optim.SGD, Adam and AdamW.

    Args:
        recipe: Optimiser, its settings and weight decay.
        old: The parameter and its state.
        gradient: The parameter's gradient.
        rate: The learning rate.
        corrected: From `bias_corrected`.
    """
    value, *state = old
    size, root = corrected
    if recipe.weight_decay and recipe.optimiser != "adamw":
        gradient = gradient + recipe.weight_decay * value
    if recipe.optimiser == "sgd":
        moved = recipe.momentum * state[0] + gradient if state else gradient
        return [value - size * moved, moved][: len(old)]
    if recipe.weight_decay and recipe.optimiser == "adamw":
        value = value * (1 - rate * recipe.weight_decay)
    mean = state[0] + (1 - recipe.beta1) * (gradient - state[0])
    square = recipe.beta2 * state[1] + (1 - recipe.beta2) * (gradient * gradient)
    return [value - size * (mean / (torch.sqrt(square) / root + recipe.epsilon)), mean, square]
