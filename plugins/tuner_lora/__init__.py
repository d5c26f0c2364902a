"""Low-rank adapters: below the head, every weight W trains as W + s·BA with a small rank, and is W + s·BA afterwards.

The adapters are merged when training ends, so that the exported model is as small and as fast as the given one.

Source: LoRA (Hu et al., ICLR 2022), section 4.1; a convolution's kernel is read as a matrix [out, in · height · width].
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.plugin import Draw, Lowering, ModelInfo, Scalar, Stage, Strategy, Tail, TailEdit, TrialPlan, hookimpl


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about low-rank adapters.

    Attributes:
        trainable: Number of last blocks that train.
        rank: Rank of an update.
        scale: Factor s of an update.
        rate: Factor of the recipe's learning rate.
        head: How the last block's weight trains: ``whole``, or ``low-rank`` like the others. With many classes it is
            most of what trains.
    """

    trainable: int
    rank: int
    scale: float
    rate: int
    head: str


class Lora(Strategy[Knobs]):
    """Train low-rank updates of the last blocks' weights, and the head."""

    name, stage = "lora", Stage.SPLIT
    writes, refines = frozenset({Stage.SHAPE}), frozenset({Stage.RECIPE})
    excludes = MappingProxyType({"growth": "it changes weights of the given layers, which growth replaces"})

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw the depth, the rank, the scale, the factor of the learning rate, and how the head trains."""
        least, most = min(2, model.num_blocks), model.num_blocks
        return Knobs(
            trainable=draw.integer("trainable_blocks", least, most, start=min(6, most), usual=model.depths),
            rank=draw.choice("rank", (1, 2, 4, 8, 16), start=4),
            scale=draw.choice("scale", (0.5, 1.0, 2.0, 4.0), start=1.0),
            rate=draw.choice("rate", (1, 3, 10), start=3),
            head=draw.choice("head", ("whole", "low-rank"), start="whole"),
        )

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same of every model
        """Return the start values, in small batches."""
        return ({"recipe.batch_size": 16},)

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the cut, and the edit where a weight has an adapter."""
        split = plan.model.num_blocks - knobs.trainable
        head: dict[str, Any] = {} if knobs.head == "whole" else {"head": knobs.head}
        edit = TailEdit.of("low-rank", rank=knobs.rank, scale=knobs.scale, **head)
        return replace(plan, split=split, shape=(*plan.shape, edit) if knobs.trainable > 1 or head else plan.shape)

    def refine(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Raise the learning rate: the updates begin at zero."""
        rate = min(1.0, knobs.rate * plan.recipe.learning_rate)
        return replace(plan, recipe=replace(plan.recipe, learning_rate=rate))


def adapted(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Import the adapters only where PyTorch is."""
    from tuner_lora.torch import adapt

    return adapt(tail, rank=settings["rank"], scale=settings["scale"], head=settings.get("head", "whole"))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Lora()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise the edit wherever PyTorch traces or runs the tail."""
    return {"low-rank": adapted} if backend in {"torch", "onnxruntime"} else {}
