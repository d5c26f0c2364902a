"""TinyTrain's choice of layers: those train that matter most to the loss for their size; the others keep their weights.

Source: Kwon et al., TinyTrain: resource-aware task-adaptive sparse training of DNNs at the data-scarce edge, ICML 2024,
section 3.2. Here the score of a layer is that of its weights, and its cost their number; channels are not chosen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class FisherLayers(plugin.Strategy[float]):
    name, stage = "fisher_layers", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("share", (0.25, 0.5, 1.0), start=1.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("fisher_layers", share=knobs)
        return replace(plan, shape=(*plan.shape, edit)) if knobs < 1 else plan


def chosen(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    below = [layer for block in tail.blocks[:-1] for layer in block.layers.values()]
    layers = [[weight for weight in layer.parameters() if weight.requires_grad] for layer in below]
    layers = [weights for weights in layers if weights]
    scores, sizes = [0.0] * len(layers), [sum(weight.numel() for weight in weights) for weights in layers]
    for number in range(4 if layers else 0):
        gradients = iter(torch.autograd.grad(tail.probe(number), [one for weights in layers for one in weights]))
        for place, weights in enumerate(layers):
            scores[place] += (
                sum(float((next(gradients) * weight.detach()).sum().square()) for weight in weights) / sizes[place]
            )
    left = settings["share"] * sum(sizes)
    for place in sorted(range(len(layers)), key=lambda place: -scores[place]):
        trains, left = sizes[place] <= left, left - sizes[place] * (sizes[place] <= left)
        for weight in layers[place]:
            weight.requires_grad_(trains)
    return tail.module


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [FisherLayers()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"fisher_layers": chosen} if backend == "torch" else {}
