"""DoRA: below the head, the direction of every weight changes by a low-rank update, and its length by itself.

Source: Liu et al., DoRA: weight-decomposed low-rank adaptation, ICML 2024, equations 5 and 11.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Dora(plugin.Strategy[float]):
    name, stage = "dora", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("rank", (0, 2, 4, 8), start=0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        return replace(plan, shape=(*plan.shape, plugin.TailEdit.of("dora", rank=knobs))) if knobs else plan


def dora(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch
    from torch.nn.utils.parametrize import register_parametrization

    class Decomposed(torch.nn.Module):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            rows, columns = weight.flatten(1).shape
            draw = torch.Generator().manual_seed(tail.seed)
            self.down = torch.nn.Parameter(torch.randn(settings["rank"], columns, generator=draw) / columns**0.5)
            self.up = torch.nn.Parameter(torch.zeros(rows, settings["rank"]))
            self.length = torch.nn.Parameter(weight.detach().flatten(1).norm(dim=1, keepdim=True))

        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            moved = weight.flatten(1) + self.up @ self.down
            return (self.length * moved / moved.norm(dim=1, keepdim=True).detach()).view_as(weight)

    modules = [one for block in tail.blocks[:-1] for layer in block.layers.values() for one in layer.modules()]
    for module in modules:
        for name, value in list(module.named_parameters(recurse=False)):
            value.requires_grad_(False)
            if value.ndim > 1 and getattr(module, "groups", 1) == 1:
                register_parametrization(module, name, Decomposed(value))
    return tail.module


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Dora()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"dora": dora} if backend == "torch" else {}
