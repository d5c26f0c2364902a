"""SSF: below the head, the output of every layer is scaled and shifted; both are merged into the weights.

Source: Lian et al., Scaling & shifting your features, NeurIPS 2022, equation 2. A layer without a bias is not shifted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Ssf(plugin.Strategy[bool]):
    name, stage = "ssf", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> bool:
        return draw.choice("use", (False, True), start=False)

    def apply(self, plan: plugin.TrialPlan, knobs: bool) -> plugin.TrialPlan:
        return replace(plan, shape=(*plan.shape, plugin.TailEdit("ssf"))) if knobs else plan


def ssf(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch
    from torch.nn.utils.parametrize import register_parametrization

    class Scaled(torch.nn.Module):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(len(weight), *[1] * (weight.ndim - 1)))

        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * self.scale

    modules = [one for block in tail.blocks[:-1] for layer in block.layers.values() for one in layer.modules()]
    for module in modules:
        for name, value in list(module.named_parameters(recurse=False)):
            if value.ndim > 1:  # biases, and what norms have, train as they are
                value.requires_grad_(False)
                register_parametrization(module, name, Scaled(value))
    return tail.module


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Ssf()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"ssf": ssf} if backend == "torch" else {}
