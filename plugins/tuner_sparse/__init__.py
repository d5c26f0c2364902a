"""Sparse updates: below the head, only the weights of the most salient channels train, under a budget of bytes.

Saliency is |gradient × weight| on a few of the user's samples, before training. A layer of which few channels train
stores few channels of its input, and computes a part of its weight's gradient.

Source: On-Device Training Under 256KB Memory (Lin et al., NeurIPS 2022), section 3.2. There the choice is made once, on
a server, by contribution analysis; here on the device, by saliency.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.plugin import Draw, Lowering, ModelInfo, Scalar, Stage, Strategy, Tail, TailEdit, TrialPlan, hookimpl


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about sparse updates.

    Attributes:
        trainable: Number of last blocks that train; the last of them, the head, trains whole.
        share: Share of the bytes that training the other blocks whole would take: of weights, of what an optimiser
            keeps of them, and of stored inputs.
    """

    trainable: int
    share: float


class Sparse(Strategy[Knobs]):
    """Train the most salient channels of the last blocks, their biases, and the head."""

    name, stage, writes = "sparse", Stage.SPLIT, frozenset({Stage.SHAPE})
    excludes = MappingProxyType({"growth": "it changes weights of the given layers, which growth replaces"})

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw the depth, and the share of the bytes."""
        least, most = min(2, model.num_blocks), model.num_blocks
        return Knobs(
            trainable=draw.integer("trainable_blocks", least, most, start=min(6, most), usual=model.depths),
            share=draw.choice("share", (0.0625, 0.125, 0.25, 0.5), start=0.25),
        )

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same of every model
        """Return the start values, in small batches."""
        return ({"recipe.batch_size": 16},)

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the cut, and the edit where a block is below the head."""
        split = plan.model.num_blocks - knobs.trainable
        edits = (TailEdit.of("sparse", share=knobs.share),) if knobs.trainable > 1 else ()
        return replace(plan, split=split, shape=(*plan.shape, *edits))


def updated_in_part(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Import the parametrisations only where PyTorch is."""
    from tuner_sparse.torch import update_in_part

    return update_in_part(tail, share=settings["share"])


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Sparse()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise the edit wherever PyTorch traces or runs the tail."""
    return {"sparse": updated_in_part} if backend in {"torch", "onnxruntime"} else {}
