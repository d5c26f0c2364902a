"""WiSE-FT: a weighted mean of the given weights and the trained ones."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Wise(plugin.Strategy[float]):
    name, stage, excludes = "wise", plugin.Stage.SHAPE, frozenset({"growth"})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("share", (0.125, 0.25, 0.5, 0.75, 1.0), start=1.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        traits = plugin.EditTraits(traceable=False, after_training=("share",))
        edit = plugin.TailEdit.of("wise", traits, share=knobs)
        return replace(plan, shape=(*plan.shape, edit)) if knobs < 1 else plan


def wise(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    from torch import nn

    before = [(weight, weight.detach().clone()) for weight in tail.module.parameters()]

    class Between(plugin.Evolving, nn.Sequential):
        def finish(self, samples: plugin.TrainingSamples) -> tuple[str, ...]:
            for weight, given in before:
                weight.lerp_(given, 1 - settings["share"])
            return ()

    return Between(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Wise()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"wise": wise} if backend == "torch" else {}
