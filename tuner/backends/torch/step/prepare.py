"""A tail made ready to be traced: its dropouts and batch norms read what a step feeds them."""

import copy
import itertools

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from tuner.backends.torch.model.graph.kinds import NORMS
from tuner.backends.torch.step.substitutes import Feed, WeightedNorm, substituted
from tuner.backends.torch.step.traced import EAGERLY, StepError
from tuner.plan.parts import RecipePlan


def prepared(tail: nn.Module, recipe: RecipePlan, feed: Feed, *, padded: bool) -> nn.Module:
    """Return a copy of the tail that shares its weights, in training mode, with modules that read from `feed`."""
    model = sharing_weights(tail).train()
    for module in model.modules():
        if recipe.freeze_bn and isinstance(module, NORMS):
            module.eval()
    for name, module in list(model.named_modules()):
        if padded and isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            if parametrize.is_parametrized(module):
                raise StepError(f"a parametrised norm that trains on padded batches cannot be traced: {EAGERLY}")
            norm = WeightedNorm(module, feed)
            if not name:
                return norm
            model.set_submodule(name, norm)
    return model


def sharing_weights(tail: nn.Module, *others: object) -> nn.Module:
    """Return a copy of a module that has the same parameters and buffers, and holds the same other objects."""
    shared = {id(value): value for value in itertools.chain(tail.parameters(), tail.buffers(), others)}
    return copy.deepcopy(tail, shared)


def noise_shapes(model: nn.Module, sample: torch.Tensor, feed: Feed) -> dict[str, tuple[int, ...]]:
    """Return the shape of each draw of random numbers, by name, in the order of their calls."""
    feed.weight = torch.ones(len(sample))
    counted = sharing_weights(model, feed)  # as counters move even here, and tied weights are not put back as they were
    values = itertools.chain(counted.named_parameters(), counted.named_buffers())
    with torch.no_grad(), substituted(feed):
        functional_call(counted, {name: torch.empty_like(value) for name, value in values}, (sample,))
    return {f"noise.{index}": shape for index, shape in enumerate(feed.shapes)}


def moving_buffers(model: nn.Module) -> list[str]:
    """Return the buffers that a step changes: running statistics of norms that train."""
    return [
        f"{name}.{key}".lstrip(".")
        for name, module in model.named_modules()
        if isinstance(module, (WeightedNorm, nn.modules.batchnorm._NormBase))  # noqa: SLF001 - torch has no public base class of its norms
        and module.training
        for key, _ in module.named_buffers()
    ]
