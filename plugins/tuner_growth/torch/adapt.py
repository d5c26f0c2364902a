"""Adapters: the weights that newborn channels start from.

Sources: MDLdroidLite (DSPA), Net2Net (Net2WiderNet), CGaP, NeST; this project's own decisions are at their places.
"""

import math
from collections.abc import Callable

import torch

from tuner_growth.torch.nest import nest, small
from tuner_growth.torch.site import LINEAR, Adapted, Site, WidenInputs, WiderLayer, assembled
from tuner_growth.torch.widths import weight_of


def dspa(site: Site) -> Adapted:
    """Copy the channels most like the least salient one, scaled to fresh weights' size (RIC-adaption, three steps).

    λ = Std(W)·√(3·fan_in)/r compares a layer's weights with fresh ones; equation 13 as printed has √3 below the line,
    which would enlarge fresh weights. r is o/(o + a) for linears, 1 otherwise, and for a linear successor too, its o
    being its inputs: read as 1 there, the loss of a LeNet on digits rose by 0.03 in two of five seeds instead of by
    at most 0.01. The paper divides existing channels by the grown layer's λ and multiplies them by it in a gate; here
    the gate moves in the weights, so that they stay as they are.
    """
    size, width = site.width.size, site.width
    vectors = torch.cat([weight_of(site.body, name).flatten(1) for name in width.producers], dim=1)
    anchor = int(site.saliency.argmin())
    likeness = torch.nn.functional.cosine_similarity(vectors, vectors[anchor : anchor + 1])
    likeness[anchor] = math.inf
    sources = site.in_turn(likeness.argsort(descending=True, stable=True))

    def outputs(weight: torch.Tensor, bias: torch.Tensor | None) -> WiderLayer:
        share = size / (size + site.added) if weight.ndim == LINEAR else 1.0
        scale = _scale(weight, weight[0].numel(), share)
        grown = torch.cat([weight, (weight[sources] + site.noise(weight[sources].shape)) / scale])
        grown_scale = _scale(grown, weight[0].numel(), share)
        if bias is None:
            return WiderLayer(grown, None, grown_scale)
        return WiderLayer(grown, torch.cat([bias, site.noise(bias[sources].shape) / scale]), grown_scale)

    def inputs(blocks: torch.Tensor, linear: bool) -> torch.Tensor:
        share = size / (size + site.added) if linear else 1.0
        scale = _scale(blocks, (size + site.added) * blocks.shape[2], share)
        newborn = (blocks[:, sources] + site.noise(blocks[:, sources].shape)) / scale
        return torch.cat([blocks, newborn], dim=1)

    return assembled(site, sources, outputs, inputs, fresh=True)


def net2wider(site: Site) -> Adapted:
    """Copy random channels and share their successors' weights among the copies: the function stays (Net2WiderNet)."""
    sources = torch.randint(site.width.size, (site.added,), generator=site.generator)
    copies = 1.0 + torch.bincount(sources, minlength=site.width.size)

    def inputs(blocks: torch.Tensor, linear: bool) -> torch.Tensor:  # noqa: ARG001 - the signature is `WidenInputs`'
        shared = blocks / copies[:, None]
        return torch.cat([shared, shared[:, sources]], dim=1)

    return assembled(site, sources, lambda weight, bias: _copied(weight, bias, sources), inputs)


def net2wider_noisy(site: Site) -> Adapted:
    """Copy random channels, halve both in the successor, add noise to the copies (MDLdroidLite's baseline)."""
    sources = site.in_turn(torch.randperm(site.width.size, generator=site.generator))

    def outputs(weight: torch.Tensor, bias: torch.Tensor | None) -> WiderLayer:
        wider = _copied(weight, bias, sources)
        wider.weight[site.width.size :] += site.noise(weight[sources].shape)
        return wider

    return assembled(site, sources, outputs, _halving(site, sources))


def cgap(site: Site) -> Adapted:
    """Copy the most salient channels, halve both in both layers, add noise to the copies (CGaP's selection)."""
    sources = site.in_turn(site.saliency.argsort(descending=True, stable=True))

    def outputs(weight: torch.Tensor, bias: torch.Tensor | None) -> WiderLayer:
        wider = _copied(weight, bias, sources)
        halved = torch.cat([sources, torch.arange(site.width.size, len(wider.weight))])
        wider.weight[halved] /= 2
        if wider.bias is not None:
            wider.bias[halved] /= 2
        wider.weight[site.width.size :] += site.noise(weight[sources].shape)
        return wider

    return assembled(site, sources, outputs, _halving(site, sources))


Adapter = Callable[[Site], Adapted]
ADAPTERS: dict[str, Adapter] = {
    "dspa": dspa,
    "net2wider": net2wider,
    "net2wider-noisy": net2wider_noisy,
    "cgap": cgap,
    "nest": nest,
    "random": small,
}


def _scale(weight: torch.Tensor, fan_in: int, share: float) -> float:
    """Return λ: the standard deviation relative to that of U(±1/√fan_in); 1 for weights that are all alike."""
    scale = float(weight.std(correction=0)) * math.sqrt(3 * fan_in) / share
    return scale if scale > 0 else 1.0


def _copied(weight: torch.Tensor, bias: torch.Tensor | None, sources: torch.Tensor) -> WiderLayer:
    """Return a layer with copies of some outputs."""
    return WiderLayer(torch.cat([weight, weight[sources]]), None if bias is None else torch.cat([bias, bias[sources]]))


def _halving(site: Site, sources: torch.Tensor) -> WidenInputs:
    """Return what halves sources and copies in a successor and adds noise to the copies."""

    def inputs(blocks: torch.Tensor, linear: bool) -> torch.Tensor:  # noqa: ARG001 - the signature is `WidenInputs`'
        grown = torch.cat([blocks, blocks[:, sources]], dim=1)
        grown[:, torch.cat([sources, torch.arange(site.width.size, grown.shape[1])])] /= 2
        grown[:, site.width.size :] += site.noise(blocks[:, sources].shape)
        return grown

    return inputs
