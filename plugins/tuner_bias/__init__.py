"""Bias-only training: below the head, the biases train, and the scales of norms where wanted; the weights stay.

A weight that stays needs no gradient, no optimiser state, and no stored input of its layer.

Source: TinyTL (Cai et al., NeurIPS 2020), section 3.1; BitFit (Zaken et al., ACL 2022).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.plugin import Draw, Lowering, ModelInfo, Scalar, Stage, Strategy, Tail, TailEdit, TrialPlan, hookimpl


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about bias-only training.

    Attributes:
        trainable: Number of last blocks that train; the last of them, the head, trains whole.
        scales: Whether the scales of norms train too: then the inputs of norms are stored.
        rate: Factor of the recipe's learning rate.
    """

    trainable: int
    scales: bool
    rate: int


class BiasOnly(Strategy[Knobs]):
    """Train the biases of the last blocks, and the head."""

    name, stage = "bias", Stage.SPLIT
    writes, refines = frozenset({Stage.SHAPE}), frozenset({Stage.RECIPE})
    excludes = MappingProxyType({"growth": "it changes weights of the given layers, which growth replaces"})

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw the depth, whether scales train, and the factor of the learning rate."""
        least, most = min(2, model.num_blocks), model.num_blocks
        return Knobs(
            trainable=draw.integer("trainable_blocks", least, most, start=min(6, most), usual=model.depths),
            scales=draw.choice("scales", (False, True)),
            rate=draw.choice("rate", (1, 3, 10), start=3),
        )

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same of every model
        """Return the start values, in small batches."""
        return ({"recipe.batch_size": 16},)

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the cut, and the edit where a block is below the head."""
        split = plan.model.num_blocks - knobs.trainable
        edits = (TailEdit.of("bias-only", scales=knobs.scales),) if knobs.trainable > 1 else ()
        return replace(plan, split=split, shape=(*plan.shape, *edits))

    def refine(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Raise the learning rate: few scalars train, each from where it was."""
        rate = min(1.0, knobs.rate * plan.recipe.learning_rate)
        return replace(plan, recipe=replace(plan.recipe, learning_rate=rate))


def biases_only(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Freeze all but the biases, and where wanted the scales of norms, of every block but the last."""
    for block in tail.blocks[:-1]:
        for layer in block.layers.values():
            for name, value in layer.named_parameters():
                scale = settings["scales"] and value.ndim == 1
                value.requires_grad_(scale or name.endswith("bias"))
    return tail.module


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [BiasOnly()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise the edit wherever PyTorch traces or runs the tail."""
    return {"bias-only": biases_only} if backend in {"torch", "onnxruntime"} else {}
