"""DER++: next to the labels of old samples, the answers that the given model has for them.

Source: Buzzega et al., Dark experience for general continual learning: a strong, simple baseline, NeurIPS 2020,
equation 6. The answers are those of the given model, not those on the way; of labels that the given model has, the
user's samples have them too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Der(plugin.Strategy[float]):
    name, stage = "der", plugin.Stage.LOSS

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("alpha", (0.0, 0.1, 0.2, 0.5), start=0.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        term = plugin.LossTerm("der", knobs, teacher=True)
        return replace(plan, loss=(*plan.loss, term)) if knobs else plan


def answers(batch: plugin.LossInputs, settings: Mapping[str, Any]) -> Any:
    if not batch.known:  # it knows none of the classes
        return batch.logits.sum(1) * 0
    apart = (batch.logits - batch.teacher)[:, : batch.known].square().mean(1)
    return apart * (batch.labels < batch.known) if batch.targets.one_class else apart


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Der()]


@plugin.hookimpl
def tuner_losses(backend: str) -> Mapping[str, plugin.LossFunction]:
    return {"der": answers} if backend in ("torch", "onnxruntime") else {}
