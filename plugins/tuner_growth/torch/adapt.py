"""Adapters: the weights that newborn channels start from.

Sources: MDLdroidLite (DSPA), Net2Net (Net2WiderNet), CGaP, NeST; what is decided here stands at its place.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from tuner.backends.torch.widths import Width, channels, flat, install, weight_of

#: μ of the uniform noise U(−μ, μ).
NOISE = 0.1
#: Candidates NeST tries for convolutions, and the mean size of its linears' new weights against the existing ones'.
CANDIDATES = 10
BRIDGE = 0.3
#: Random newborns against the usual initialisation U(±1/√fan_in).
SMALL = 0.1
#: Dimensions of a linear layer's weight.
LINEAR = 2
Tensor = torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """Where channels are added.

    Attributes:
        body: The network; not changed.
        width: Its group that grows; `width.size` is that of now.
        added: How many.
        saliency: Of the existing channels, float32 [size].
        generator: Of all that is random.
        loss: Mean loss of a network on a fixed batch, a scalar with its graph.
    """

    body: nn.Module
    width: Width
    added: int
    saliency: Tensor
    generator: torch.Generator
    loss: Callable[[nn.Module], Tensor]

    def noise(self, shape: torch.Size, bound: float = NOISE) -> Tensor:
        """Return U(−bound, bound)."""
        return (2 * torch.rand(shape, generator=self.generator) - 1) * bound


@dataclass(frozen=True, slots=True, eq=False)
class Adapted:
    """The grown tensors by name, and gates by module: float32 [size + added], multiplied with its output's channels."""

    changes: dict[str, Tensor]
    gates: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A layer with more outputs: weights [size + added, ...], biases, and the gates that keep its old outputs."""

    weight: Tensor
    bias: Tensor | None
    gate: Tensor | None = None


Out = Callable[[Tensor, Tensor | None], Rows]
Into = Callable[[Tensor, bool], Tensor]


def dspa(site: Site) -> Adapted:
    """Copy the channels most like the least salient one, scaled to fresh weights' size (RIC-adaption, three steps).

    λ = Std(W)·√(3·fan_in)/r compares a layer's weights with fresh ones; equation 13 as printed has √3 below the line,
    which would enlarge fresh weights. r is o/(o + a) for linears, 1 otherwise, and for a linear successor too, its o
    being its inputs: read as 1 there, the loss of a LeNet on digits rose by 0.03 in two of five seeds instead of by
    at most 0.01. Existing channels are divided by the grown layer's λ, and a gate multiplies them by it, so that old
    outputs stay as they were.
    """
    size, width = site.width.size, site.width
    vectors = torch.cat([weight_of(site.body, name).flatten(1) for name in width.givers], dim=1)
    anchor = int(site.saliency.argmin())
    likeness = torch.nn.functional.cosine_similarity(vectors, vectors[anchor : anchor + 1])
    likeness[anchor] = math.inf
    order = likeness.argsort(descending=True, stable=True)
    sources = order.repeat(-(-site.added // size))[: site.added]

    def out(weight: Tensor, bias: Tensor | None) -> Rows:
        share = size / (size + site.added) if weight.ndim == LINEAR else 1.0
        scale = _scale(weight, weight[0].numel(), share)
        grown = torch.cat([weight, (weight[sources] + site.noise(weight[sources].shape)) / scale])
        kept = _scale(grown, weight[0].numel(), share)
        grown[:size] /= kept
        gate = torch.cat([torch.full((size,), kept), torch.ones(site.added)])
        if bias is None:
            return Rows(grown, None, gate)
        return Rows(grown, torch.cat([bias / kept, site.noise(bias[sources].shape) / scale]), gate)

    def into(blocks: Tensor, linear: bool) -> Tensor:
        share = size / (size + site.added) if linear else 1.0
        scale = _scale(blocks, (size + site.added) * blocks.shape[2], share)
        newborn = (blocks[:, sources] + site.noise(blocks[:, sources].shape)) / scale
        return torch.cat([blocks, newborn], dim=1)

    return _assembled(site, sources, out, into, fresh=True)


def net2wider(site: Site) -> Adapted:
    """Copy random channels and share their successors' weights among the copies: the function stays (Net2WiderNet)."""
    sources = torch.randint(site.width.size, (site.added,), generator=site.generator)
    copies = 1.0 + torch.bincount(sources, minlength=site.width.size)

    def into(blocks: Tensor, linear: bool) -> Tensor:  # noqa: ARG001 - the signature is `Into`'s
        shared = blocks / copies[:, None]
        return torch.cat([shared, shared[:, sources]], dim=1)

    return _assembled(site, sources, lambda weight, bias: _copied(weight, bias, sources), into)


def net2wider_noisy(site: Site) -> Adapted:
    """Copy random channels, halve both in the successor, add noise to the copies (MDLdroidLite's baseline)."""
    sources = _distinct(site, torch.randperm(site.width.size, generator=site.generator))

    def out(weight: Tensor, bias: Tensor | None) -> Rows:
        rows = _copied(weight, bias, sources)
        rows.weight[site.width.size :] += site.noise(weight[sources].shape)
        return rows

    return _assembled(site, sources, out, _halving(site, sources))


def cgap(site: Site) -> Adapted:
    """Copy the most salient channels, halve both in both layers, add noise to the copies (CGaP's selection)."""
    sources = _distinct(site, site.saliency.argsort(descending=True, stable=True))

    def out(weight: Tensor, bias: Tensor | None) -> Rows:
        rows = _copied(weight, bias, sources)
        halved = torch.cat([sources, torch.arange(site.width.size, len(rows.weight))])
        rows.weight[halved] /= 2
        if rows.bias is not None:
            rows.bias[halved] /= 2
        rows.weight[site.width.size :] += site.noise(weight[sources].shape)
        return rows

    return _assembled(site, sources, out, _halving(site, sources))


def nest(site: Site) -> Adapted:
    """Grow convolutions by the best of ten random candidates, linears along bridging gradients (NeST)."""
    ends = (*site.width.givers, *site.width.takers)
    if all(isinstance(site.body.get_submodule(name), nn.Linear) for name in ends):
        return _bridged(site)

    def loss(candidate: Adapted) -> float:
        trial = copy.deepcopy(site.body)
        install(trial, candidate.changes)
        with torch.no_grad():
            return float(site.loss(trial))

    return min((small(site, scale=1.0) for _ in range(CANDIDATES)), key=loss)


def small(site: Site, scale: float = SMALL) -> Adapted:
    """Start from the usual uniform initialisation, made smaller."""
    sources = torch.arange(site.added) % site.width.size

    def out(weight: Tensor, bias: Tensor | None) -> Rows:
        bound = scale / math.sqrt(weight[0].numel())
        newborn = site.noise(weight[sources].shape, bound)
        return Rows(
            torch.cat([weight, newborn]),
            None if bias is None else torch.cat([bias, site.noise(bias[sources].shape, bound)]),
        )

    def into(blocks: Tensor, linear: bool) -> Tensor:  # noqa: ARG001 - the signature is `Into`'s
        bound = scale / math.sqrt((site.width.size + site.added) * blocks.shape[2])
        return torch.cat([blocks, site.noise(blocks[:, sources].shape, bound)], dim=1)

    return _assembled(site, sources, out, into, fresh=True)


Adapter = Callable[[Site], Adapted]
ADAPTERS: dict[str, Adapter] = {
    "dspa": dspa,
    "net2wider": net2wider,
    "net2wider-noisy": net2wider_noisy,
    "cgap": cgap,
    "nest": nest,
    "random": small,
}


def _assembled(site: Site, sources: Tensor, out: Out, into: Into, *, fresh: bool = False) -> Adapted:
    """Return the grown tensors of every layer of a width.

    Args:
        site: Where.
        sources: The existing channel each newborn takes its norms' statistics from, int64 [added].
        out: Grows the outputs of a giver or of a depthwise convolution.
        into: Grows the inputs of a taker, linear or not: [outputs, size, rest] to [outputs, size + added, rest].
        fresh: Whether newborns' norms start with weight 1 and bias 0 instead of their source's.
    """
    adapted = Adapted({})
    for name in (*site.width.givers, *site.width.along):
        bias = site.body.get_submodule(name)._parameters["bias"]  # noqa: SLF001 - None where the layer has none
        rows = out(weight_of(site.body, name), None if bias is None else bias.detach())
        adapted.changes[f"{name}.weight"] = rows.weight
        if rows.bias is not None:
            adapted.changes[f"{name}.bias"] = rows.bias
        if rows.gate is not None:
            adapted.gates[name] = rows.gate
    for name in site.width.norms:
        norm = site.body.get_submodule(name)
        for leaf, value in (*norm.named_parameters(recurse=False), *norm.named_buffers(recurse=False)):
            if value.ndim:
                newborn = value.detach()[sources]
                if fresh and leaf in {"weight", "bias"}:
                    newborn = torch.full_like(newborn, float(leaf == "weight"))
                adapted.changes[f"{name}.{leaf}"] = torch.cat([value.detach(), newborn])
    for name in site.width.takers:
        weight = adapted.changes.get(f"{name}.weight", weight_of(site.body, name))  # a residual block gives and takes
        adapted.changes[f"{name}.weight"] = flat(into(channels(weight, site.width.size), weight.ndim == LINEAR), weight)
    return adapted


def _scale(weight: Tensor, fan_in: int, share: float) -> float:
    """Return λ: the standard deviation against that of U(±1/√fan_in); 1 for weights that are all alike."""
    found = float(weight.std(correction=0)) * math.sqrt(3 * fan_in) / share
    return found if found > 0 else 1.0


def _copied(weight: Tensor, bias: Tensor | None, sources: Tensor) -> Rows:
    return Rows(torch.cat([weight, weight[sources]]), None if bias is None else torch.cat([bias, bias[sources]]))


def _distinct(site: Site, order: Tensor) -> Tensor:
    """Return as many sources as are added; none twice before every channel was one."""
    return order.repeat(-(-site.added // site.width.size))[: site.added]


def _halving(site: Site, sources: Tensor) -> Into:
    """Return what halves sources and copies in a successor and adds noise to the copies."""

    def into(blocks: Tensor, linear: bool) -> Tensor:  # noqa: ARG001 - the signature is `Into`'s
        grown = torch.cat([blocks, blocks[:, sources]], dim=1)
        grown[:, torch.cat([sources, torch.arange(site.width.size, grown.shape[1])])] /= 2
        grown[:, site.width.size :] += site.noise(blocks[:, sources].shape)
        return grown

    return into


def _bridged(site: Site) -> Adapted:
    """Return neurons of random signs and of the size √|mean input · mean gradient|: a bridge between the two.

    The mean over the other side stands for it: |w_in| = √(|x_i| · mean|g|), |w_out| = √(mean|x| · |g_j|).
    """
    adapted = small(site)
    inputs, gradients = _around(site)
    for name in site.width.givers:
        weight = weight_of(site.body, name)
        size = (inputs[name].abs() * torch.stack([one.abs().mean() for one in gradients.values()]).mean()).sqrt()
        adapted.changes[f"{name}.weight"][site.width.size :] = _signed(site, size.expand(site.added, -1), weight)
    for name in site.width.takers:
        weight = weight_of(site.body, name)
        size = (gradients[name].abs() * torch.stack([one.abs().mean() for one in inputs.values()]).mean()).sqrt()
        adapted.changes[f"{name}.weight"][:, site.width.size :] = _signed(
            site, size[:, None].expand(-1, site.added), weight
        )
    return adapted


def _around(site: Site) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return givers' mean inputs and the mean gradients of takers' outputs, by module."""
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    hooks = [
        site.body.get_submodule(name).register_forward_pre_hook(
            lambda _, args, name=name: inputs.update({name: args[0].detach().mean(dim=0)})
        )
        for name in site.width.givers
    ]
    hooks += [
        site.body.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: outputs.update({name: output})
        )
        for name in site.width.takers
    ]
    try:
        with torch.enable_grad():
            found = torch.autograd.grad(site.loss(site.body), [outputs[name] for name in site.width.takers])
    finally:
        for hook in hooks:
            hook.remove()
    return inputs, {name: one.mean(dim=0) for name, one in zip(site.width.takers, found, strict=True)}


def _signed(site: Site, size: Tensor, weight: Tensor) -> Tensor:
    """Return random signs times `size`, rescaled to `BRIDGE` of the mean size of existing weights."""
    signs = torch.randint(2, size.shape, generator=site.generator) * 2.0 - 1
    mean = float(size.mean())
    return signs * size * (BRIDGE * float(weight.abs().mean()) / mean if mean > 0 else 1.0)
