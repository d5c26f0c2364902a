"""L2-SP: weights are pulled back to where they began, and the head to zero.

Source: Li et al., Explicit inductive bias for transfer learning with convolutional networks, ICML 2018, equation 3.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class L2Sp(plugin.Strategy[float]):
    name, stage = "l2_sp", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("strength", (0.0, 1e-3, 1e-2, 1e-1), start=0.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("l2_sp", plugin.EditTraits(traceable=False), strength=knobs)
        return replace(plan, shape=(*plan.shape, edit)) if knobs else plan


def l2_sp(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    from torch import nn

    given = [(weight, weight.detach().clone()) for weight in tail.module.parameters()]
    head = {id(weight) for weight in tail.head.parameters()}

    class Pulled(plugin.Evolving, nn.Sequential):
        def before_update(self, loss: float) -> None:
            for weight, start in given:
                if weight.grad is not None:
                    pull = weight.detach() if id(weight) in head else weight.detach() - start
                    weight.grad.add_(pull, alpha=settings["strength"])

    return Pulled(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [L2Sp()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"l2_sp": l2_sp} if backend == "torch" else {}
