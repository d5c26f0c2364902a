"""LP-FT: the head trains alone first, and then the whole tail, so that a new head does not distort the features.

Source: Kumar et al., Fine-tuning can distort pretrained features and underperform out-of-distribution, ICLR 2022.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class LpFt(plugin.Strategy[float]):
    name, stage = "lp_ft", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("probing", (0.0, 0.25, 0.5), start=0.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("lp_ft", plugin.EditTraits(traceable=False), probing=knobs)
        return replace(plan, shape=(*plan.shape, edit)) if knobs else plan


def lp_ft(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    from torch import nn

    class Probing(plugin.Evolving, nn.Sequential):
        epochs = 0

        def before_update(self, loss: float) -> None:
            if self.epochs < settings["probing"] * tail.plan.recipe.epochs:
                for layer in [layer for block in tail.blocks[:-1] for layer in block.layers.values()]:
                    layer.zero_grad()  # to None, which optimisers leave alone

        def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:
            self.epochs = epoch
            return {}

        def state(self) -> dict[str, Any]:
            return {"epochs": self.epochs}

        def restore(self, state: Mapping[str, Any]) -> None:
            self.epochs = state["epochs"]

    return Probing(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [LpFt()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"lp_ft": lp_ft} if backend == "torch" else {}
