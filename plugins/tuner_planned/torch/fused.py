"""Optimiser updates by the library's fused kernels: one pass over weight and state, in place, on all cores.

A traced update is a dozen operators, each a pass over memory with a result of its own. What they compute is the
optimiser's step; where the traced form is recognised as that, the planned executor calls the kernel instead.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from tuner.backends.torch.step.optimiser import STATES
from tuner.plan.parts import RecipePlan
from tuner_planned.torch.nodes import ATEN
from tuner_planned.torch.schedule import Update, operands

#: Takes the weight, its state in the order of `STATES`, the gradient, the learning rate and (Adam) the step count.
Fused = Callable[..., None]


def gradient_of(item: Update, recipe: RecipePlan, ports: Mapping[fx.Node, str]) -> fx.Node | None:
    """Return the gradient by which an update is the optimiser's step; None where it is not recognised as one.

    `ports` are the ports' names by input node.
    """
    names = [ports[port] for port in item.replaced]
    states = STATES[recipe.optimiser]
    if names[1:] != [f"{state}.{names[0]}" for state in states]:
        return None
    weight, first = item.replaced[:2]
    wanted, place = (ATEN.add.Tensor, 0) if recipe.optimiser == "sgd" else (ATEN.sub.Tensor, 1)
    for node in item.nodes:
        if node.target != wanted or not _reads(node.args[place], first):
            continue
        gradient: Any = node.args[1 - place]
        if recipe.weight_decay and recipe.optimiser != "adamw":
            decayed = isinstance(gradient, fx.Node) and gradient.target == ATEN.add.Tensor
            gradient = gradient.args[0] if decayed and _reads(gradient.args[1], weight) else None
        return gradient if isinstance(gradient, fx.Node) and gradient in operands(item) else None
    return None


def fused(recipe: RecipePlan) -> Fused:
    """Return a recipe's optimiser as one call: by torch.optim's formulas, in place."""
    decay = recipe.weight_decay
    if recipe.optimiser == "sgd":

        def descend(weight: torch.Tensor, momentum: torch.Tensor, gradient: torch.Tensor, rate: torch.Tensor) -> None:
            torch._fused_sgd_(
                [weight], [like(weight, gradient)], [momentum], weight_decay=decay, momentum=recipe.momentum, lr=rate,
                dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
            )  # fmt: skip

        return descend
    kernel = torch._fused_adamw_ if recipe.optimiser == "adamw" else torch._fused_adam_

    def adapt(
        weight: torch.Tensor,
        mean: torch.Tensor,
        square: torch.Tensor,
        gradient: torch.Tensor,
        rate: torch.Tensor,
        count: torch.Tensor,
    ) -> None:
        kernel(
            [weight], [like(weight, gradient)], [mean], [square], [], [count], lr=rate, beta1=recipe.beta1,
            beta2=recipe.beta2, weight_decay=decay, eps=recipe.epsilon, amsgrad=False, maximize=False,
        )  # fmt: skip

    return adapt


def like(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient laid out in memory as the weight is: the kernels walk through both alike."""
    return gradient if laid_alike(weight, gradient) else torch.empty_like(weight).copy_(gradient)


def laid_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the elements of other tensors of tensor shape lie in the same order."""
    return all(a == b for a, b, size in zip(tensor.stride(), other.stride(), tensor.shape, strict=True) if size > 1)


def _reads(value: object, port: fx.Node) -> bool:
    """Return whether a value is an input, or that times a number."""
    if isinstance(value, fx.Node) and value.target == ATEN.mul.Tensor:
        value = value.args[0]
    return value is port
