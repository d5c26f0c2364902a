"""A branch: what looks old takes the tail as it was given, everything else a copy of it that trains.

A tail that trains deep forgets what the model knew. Here the given tail stays. At the cut a gate, ridge regression on
the mean features of the user's samples against global ones, decides for each sample which of the two tails runs. Its
threshold is the one at which most samples of both domains are answered rightly, each by the gate that is solved without
it (`tuner.ridge`). The model takes the bytes of both tails, and the FLOPs of one.

Sources: gates that choose an expert by the task that a sample seems to come from (Expert Gate, Aljundi et al., 2017);
ridge heads with exact leave-one-out as in `tuner.ridge.union`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.plugin import (
    Draw,
    EditTraits,
    Lowering,
    ModelInfo,
    Scalar,
    Stage,
    Strategy,
    Tail,
    TailEdit,
    TrialPlan,
    hookimpl,
)

KIND = "branch"
TRAITS = EditTraits(keeps_weights=False, keeps_given=True)
#: Least number of blocks that a branch trains; number of cuts of the model's ladder that are tried first.
LEAST_BLOCKS, LADDERS = 2, 2
#: Their learning rate: that of a tail which may forget (`stored tail` of `benchmarks.alternatives`).
RATE = 3e-4


@dataclass(frozen=True, slots=True)
class Knobs:
    """`use`: whether the given tail stays next to the one that trains."""

    use: bool


class Branch(Strategy[Knobs]):
    """Keep the given tail for what the model knew, and train a copy for the rest."""

    name, stage = "branch", Stage.SHAPE
    after = frozenset({"growth"})
    excludes = MappingProxyType({"closed_form": "it trains more than the head, which closed_form alone solves for"})

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw whether there is a branch: only where the task has global data, and the model several blocks."""
        has_known = draw.task is None or bool(draw.task.global_per_class)
        is_possible = has_known and model.num_blocks >= LEAST_BLOCKS
        return Knobs(use=is_possible and draw.choice("use", (False, True), start=False))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Add the edit where more than the head trains, and there is global data, from which the gate learns."""
        if not knobs.use or plan.trainable < LEAST_BLOCKS or not plan.task.global_per_class:
            return plan
        return replace(plan, shape=(*plan.shape, TailEdit(KIND, traits=TRAITS)))

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        """Return the first cuts of the model's ladder that train more than the head, from the cheap end."""
        depths = [blocks for blocks in model.depths if blocks >= LEAST_BLOCKS][:LADDERS]
        shared = {"branch.use": True, "recipe.batch_size": 16, "recipe.learning_rate": RATE}
        return tuple({**shared, "freeze.trainable_blocks": blocks} for blocks in depths)


def branched(tail: Tail, settings: Mapping[str, Any]) -> Any:  # noqa: ARG001 - a `Lowering`; it has none
    """Import the tails only where PyTorch is."""
    from tuner_branch.torch import BranchedTail

    return BranchedTail(tail)


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Branch()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise the edit wherever PyTorch traces or runs the tail."""
    return {KIND: branched} if backend in {"torch", "onnxruntime"} else {}
