"""EWC: a weight is held where it began, the more so the more it matters to the loss.

Source: Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, PNAS 2017, equation 3. The Fisher
information is that of 16 batches of training samples, old ones among them where any are mixed in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Ewc(plugin.Strategy[float]):
    name, stage = "ewc", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("strength", (0.0, 10.0, 100.0, 1000.0), start=0.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("ewc", plugin.EditTraits(traceable=False), strength=knobs)
        return replace(plan, shape=(*plan.shape, edit)) if knobs else plan


def ewc(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    weights = [weight for block in tail.blocks[:-1] for layer in block.layers.values() for weight in layer.parameters()]
    given, fisher = [weight.detach().clone() for weight in weights], [torch.zeros_like(weight) for weight in weights]
    for number in range(16 if weights else 0):
        for total, gradient in zip(fisher, torch.autograd.grad(tail.probe(number), weights), strict=True):
            total.add_(gradient.square() / 16)

    class Held(plugin.Evolving, torch.nn.Sequential):
        def before_update(self, loss: float) -> None:
            for weight, start, matter in zip(weights, given, fisher, strict=True):
                if weight.grad is not None:
                    weight.grad.add_(matter * (weight.detach() - start), alpha=settings["strength"])

    return Held(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Ewc()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"ewc": ewc} if backend == "torch" else {}
