"""Newborn channels with random weights: small ones, and NeST's, which are chosen or bridged by the loss."""

import copy
import math

import torch
from torch import nn

from tuner.backends.torch.model.resize import install
from tuner_growth.torch.site import Adapted, Site, WiderLayer, assembled
from tuner_growth.torch.widths import weight_of

#: Candidates NeST tries for convolutions, and the mean size of its linears' new weights relative to the existing ones.
CANDIDATES = 10
BRIDGE = 0.3
#: Size of random newborns relative to the usual initialisation U(±1/√fan_in).
SMALL = 0.1


def small(site: Site, scale: float = SMALL) -> Adapted:
    """Start from the usual uniform initialisation, made smaller."""
    sources = torch.arange(site.added) % site.width.size

    def outputs(weight: torch.Tensor, bias: torch.Tensor | None) -> WiderLayer:
        bound = scale / math.sqrt(weight[0].numel())
        newborn = site.noise(weight[sources].shape, bound)
        return WiderLayer(
            torch.cat([weight, newborn]),
            None if bias is None else torch.cat([bias, site.noise(bias[sources].shape, bound)]),
        )

    def inputs(blocks: torch.Tensor, linear: bool) -> torch.Tensor:  # noqa: ARG001 - the signature is `WidenInputs`'
        bound = scale / math.sqrt((site.width.size + site.added) * blocks.shape[2])
        return torch.cat([blocks, site.noise(blocks[:, sources].shape, bound)], dim=1)

    return assembled(site, sources, outputs, inputs, fresh=True)


def nest(site: Site) -> Adapted:
    """Grow convolutions by the best of ten random candidates, linears along bridging gradients (NeST)."""
    ends = (*site.width.producers, *site.width.consumers)
    if all(isinstance(site.body.get_submodule(name), nn.Linear) for name in ends):
        return _bridged(site)

    def loss(candidate: Adapted) -> float:
        network = copy.deepcopy(site.body)
        install(network, candidate.changes)
        with torch.no_grad():
            return float(site.loss(network))

    return min((small(site, scale=1.0) for _ in range(CANDIDATES)), key=loss)


def _bridged(site: Site) -> Adapted:
    """Return neurons of random signs and of the size √|mean input · mean gradient|: a bridge between the two.

    The mean over the other side stands for it: |w_in| = √(|x_i| · mean|g|), |w_out| = √(mean|x| · |g_j|).
    """
    adapted = small(site)
    inputs, gradients = _around(site)
    mean_gradient = torch.stack([gradient.abs().mean() for gradient in gradients.values()]).mean()
    mean_input = torch.stack([value.abs().mean() for value in inputs.values()]).mean()
    for name in site.width.producers:
        size = (inputs[name].abs() * mean_gradient).sqrt().expand(site.added, -1)
        newborn = _signed(site, size, weight_of(site.body, name))
        adapted.changes[f"{name}.weight"][site.width.size :] = newborn
    for name in site.width.consumers:
        size = (gradients[name].abs() * mean_input).sqrt()[:, None].expand(-1, site.added)
        newborn = _signed(site, size, weight_of(site.body, name))
        adapted.changes[f"{name}.weight"][:, site.width.size :] = newborn
    return adapted


def _around(site: Site) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return producers' mean inputs and the mean gradients of consumers' outputs, by module."""
    inputs: dict[str, torch.Tensor] = {}
    outputs: dict[str, torch.Tensor] = {}
    hooks = [
        site.body.get_submodule(name).register_forward_pre_hook(
            lambda _, args, name=name: inputs.update({name: args[0].detach().mean(dim=0)})
        )
        for name in site.width.producers
    ]
    hooks += [
        site.body.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: outputs.update({name: output})
        )
        for name in site.width.consumers
    ]
    try:
        with torch.enable_grad():
            loss = site.loss(site.body)
            gradients = torch.autograd.grad(loss, [outputs[name] for name in site.width.consumers])
    finally:
        for hook in hooks:
            hook.remove()
    means = (gradient.mean(dim=0) for gradient in gradients)
    return inputs, dict(zip(site.width.consumers, means, strict=True))


def _signed(site: Site, size: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return random signs times `size`, rescaled to `BRIDGE` of the mean size of existing weights."""
    signs = torch.randint(2, size.shape, generator=site.generator) * 2.0 - 1
    mean = float(size.mean())
    return signs * size * (BRIDGE * float(weight.abs().mean()) / mean if mean > 0 else 1.0)
