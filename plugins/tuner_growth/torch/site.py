"""The place where channels are added, and how every layer there gets them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from tuner_growth.torch.widths import Width, channels, flat, weight_of

#: μ of the uniform noise U(−μ, μ).
NOISE = 0.1
#: Dimensions of a linear layer's weight.
LINEAR = 2


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """The place where channels are added.

    Attributes:
        body: Network; not changed.
        width: Group of channels that grows, with its current size.
        added: Number of newborn channels.
        saliency: Saliency of the existing channels, float32 [size].
        generator: Source of everything random.
        loss: Mean loss of a network on a fixed batch, a scalar with its graph.
    """

    body: nn.Module
    width: Width
    added: int
    saliency: torch.Tensor
    generator: torch.Generator
    loss: Callable[[nn.Module], torch.Tensor]

    def noise(self, shape: torch.Size, bound: float = NOISE) -> torch.Tensor:
        """Return U(−bound, bound)."""
        return (2 * torch.rand(shape, generator=self.generator) - 1) * bound

    def in_turn(self, order: torch.Tensor) -> torch.Tensor:
        """Return a source for each newborn channel, in an order; none twice before every channel was used.

        Args:
            order: Existing channels, int64 [size].
        """
        return order.repeat(-(-self.added // self.width.size))[: self.added]


@dataclass(frozen=True, slots=True, eq=False)
class Adapted:
    """The tensors of a grown network.

    Attributes:
        changes: Grown tensors by name.
        scales: Where the gates of a module's existing channels begin, by module; see `tuner_growth.torch.gates`.
    """

    changes: dict[str, torch.Tensor]
    scales: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class WiderLayer:
    """A layer with more outputs.

    Attributes:
        weight: Weights, float32 [size + added, ...].
        bias: Biases, float32 [size + added]; None where the layer has none.
        scale: Where the gates of existing channels begin; None without gates.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    scale: float | None = None


#: Grows the outputs of a layer: takes its weight and its bias.
WidenOutputs = Callable[[torch.Tensor, torch.Tensor | None], WiderLayer]
#: Grows the inputs of a layer: [outputs, size, rest] to [outputs, size + added, rest]; the flag: it is linear.
WidenInputs = Callable[[torch.Tensor, bool], torch.Tensor]


def assembled(
    site: Site, sources: torch.Tensor, outputs: WidenOutputs, inputs: WidenInputs, *, fresh: bool = False
) -> Adapted:
    """Return the grown tensors of every layer of a width.

    Args:
        site: Where channels are added.
        sources: The existing channel each newborn takes its norms' statistics from, int64 [added].
        outputs: Grows the outputs of a producer or of a depthwise convolution.
        inputs: Grows the inputs of a consumer.
        fresh: Whether newborns' norms start with weight 1 and bias 0 instead of their source's.
    """
    adapted = Adapted({})
    for name in (*site.width.producers, *site.width.depthwise):
        bias = site.body.get_submodule(name)._parameters["bias"]  # noqa: SLF001 - None where the layer has none
        wider = outputs(weight_of(site.body, name), None if bias is None else bias.detach())
        adapted.changes[f"{name}.weight"] = wider.weight
        if wider.bias is not None:
            adapted.changes[f"{name}.bias"] = wider.bias
        if wider.scale is not None:
            adapted.scales[name] = wider.scale
    for name in site.width.norms:
        norm = site.body.get_submodule(name)
        for leaf, value in (*norm.named_parameters(recurse=False), *norm.named_buffers(recurse=False)):
            if value.ndim:
                newborn = value.detach()[sources]
                if fresh and leaf in {"weight", "bias"}:
                    newborn = torch.full_like(newborn, float(leaf == "weight"))
                adapted.changes[f"{name}.{leaf}"] = torch.cat([value.detach(), newborn])
    for name in site.width.consumers:
        # a residual block produces and consumes the same width
        weight = adapted.changes.get(f"{name}.weight", weight_of(site.body, name))
        blocks = inputs(channels(weight, site.width.size), weight.ndim == LINEAR)
        adapted.changes[f"{name}.weight"] = flat(blocks, weight)
    return adapted
