"""The optimisers of a recipe: PyTorch's, those that plugins add, and updates as part of a traced step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from torch import nn

from tuner.backends.extensions import NOTHING_ADDED, Extensions, OptimiserError
from tuner.errors import TrainingError, call_extension
from tuner.plan.parts import RecipePlan

#: Optimiser state by recipe, one tensor of the parameter's shape each.
STATES: Mapping[str, tuple[str, ...]] = {"sgd": ("momentum",), "adam": ("mean", "square"), "adamw": ("mean", "square")}

#: What `torch.nn.utils.clip_grad_norm_` adds to a norm before it divides by it.
_SMALL = 1e-6


def optimiser(
    parameters: list[nn.Parameter], recipe: RecipePlan, extensions: Extensions = NOTHING_ADDED
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser of what trains."""
    if recipe.optimiser in extensions.optimisers:
        factory = extensions.optimisers[recipe.optimiser]
        made: object = call_extension(OptimiserError, recipe.optimiser, factory, parameters, recipe, did="raised ")
        if not isinstance(made, torch.optim.Optimizer):
            rule = f"its factory must return a torch.optim.Optimizer, but it returned {made!r}"
            raise OptimiserError(recipe.optimiser, rule)
        return made
    shared: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimiser == "sgd":
        sgd = torch.optim.SGD(parameters, momentum=recipe.momentum, **shared)
        if recipe.momentum:  # PyTorch's fused step takes no parameter that begins to train later without one
            sgd.state.update({own: {"momentum_buffer": torch.zeros_like(own)} for own in parameters})
        return sgd
    shared |= {"betas": (recipe.beta1, recipe.beta2), "eps": recipe.epsilon}
    if recipe.optimiser == "adam":
        return torch.optim.Adam(parameters, **shared)
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(parameters, **shared)
    raise TrainingError(f"no installed plugin realises optimiser {recipe.optimiser!r}: see `tuner plugins`")


def takes_closure(target: torch.optim.Optimizer) -> bool:
    """Return whether an optimiser computes gradients itself: its `step` cannot be called without a closure."""
    parameters = signature(target.step).parameters.values()
    return any(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters)


def update(target: torch.optim.Optimizer, kind: str, gradients: Callable[[], float]) -> float:
    """Let a plugin's optimiser step once; return the mean loss of the weights before.

    `gradients` computes those of the batch anew, and returns its mean loss. Dropouts draw the same whenever it is
    called.

    Raises:
        OptimiserError: The optimiser raised, or took a closure and did not call it.
    """
    losses, noise = list[float](), torch.get_rng_state()

    @torch.enable_grad()
    def closure() -> torch.Tensor:
        if losses:
            torch.set_rng_state(noise)
        losses.append(gradients())
        return torch.tensor(losses[-1])

    if takes_closure(target):
        call_extension(OptimiserError, kind, target.step, closure, did="step raised ")
    else:
        closure()
        call_extension(OptimiserError, kind, target.step, did="step raised ")
    if not losses:
        raise OptimiserError(kind, "its step takes a closure, so it must call it: no gradient is computed otherwise")
    return losses[0]


def set_rate(target: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in target.param_groups:
        group["lr"] = rate


def clip_gradients(parameters: Iterable[nn.Parameter], recipe: RecipePlan) -> None:
    """Scale the gradients of what trains together down to the recipe's norm, where it has one."""
    if recipe.clip:
        nn.utils.clip_grad_norm_(parameters, recipe.clip)


def clipped(gradients: Sequence[torch.Tensor | None], recipe: RecipePlan) -> list[torch.Tensor | None]:
    """Return the gradients of a traced step scaled, by the formula of `torch.nn.utils.clip_grad_norm_`."""
    if not recipe.clip:
        return list(gradients)
    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients if gradient is not None]
    scale = torch.clamp(recipe.clip / (torch.linalg.vector_norm(torch.stack(norms)) + _SMALL), max=1.0)
    return [None if gradient is None else gradient * scale for gradient in gradients]


def bias_corrected(recipe: RecipePlan, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Adam's step size and the root of its second bias correction; of SGD the learning rate and 1."""
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
    """Return the next parameter and state, from the `old` ones, by the formulas of torch.optim.SGD, Adam and AdamW.

    `corrected` is from `bias_corrected`.
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
