"""Distillation: the given model teaches the tail what it knew, on local and on replayed samples.

Source: Li and Hoiem, Learning without Forgetting (ECCV 2016), section 3. Two things differ: the loss is the divergence,
which is its cross-entropy less a constant, times the squared temperature (Hinton et al., Distilling the Knowledge in a
Neural Network, 2015, section 2), so that the weight means the same at every temperature; and it is taken on global
samples too, where a plan mixes any in.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import (
    Draw,
    LossFunction,
    LossInputs,
    LossTerm,
    ModelInfo,
    Scalar,
    Stage,
    Strategy,
    TrialPlan,
    hookimpl,
)

KIND = "distill"
BACKENDS = ("torch", "onnxruntime")  # which both run functions of PyTorch


@dataclass(frozen=True, slots=True)
class Knobs:
    """`weight`: of the divergence next to the task's loss; 0 leaves it out. `temperature`: softens both answers."""

    weight: float
    temperature: float


class Distillation(Strategy[Knobs]):
    """Keep the answers of the tail near those of the given model, on the classes that it knew."""

    name, stage = "distill", Stage.LOSS

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the ranges are the same for every model
        """Draw the weight, and the temperature where there is one."""
        weight = draw.choice("weight", (0.0, 0.25, 0.5, 1.0, 2.0), start=0.0)
        return Knobs(weight, draw.choice("temperature", (1.0, 2.0, 4.0), start=2.0) if weight else 1.0)

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        """Return the first cut of the model's ladder that trains more than the head."""
        blocks = next((blocks for blocks in model.depths if blocks > 1), 1)
        return ({"distill.weight": 0.5, "freeze.trainable_blocks": blocks, "recipe.batch_size": 16},)

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Add the term, unless its weight is 0."""
        if knobs.weight == 0:
            return plan
        settings = (("temperature", knobs.temperature),)
        return replace(plan, loss=(*plan.loss, LossTerm(KIND, knobs.weight, settings, teacher=True)))


def divergence(batch: LossInputs, settings: Mapping[str, Any]) -> Any:
    """Return the divergence of each sample; see `tuner_distill.torch.divergence`."""
    from tuner_distill import torch

    return torch.divergence(batch, settings["temperature"])


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Distillation()]


@hookimpl
def tuner_losses(backend: str) -> Mapping[str, LossFunction]:
    """Compute the divergence."""
    return {KIND: divergence} if backend in BACKENDS else {}
