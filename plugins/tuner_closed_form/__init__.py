"""Heads in closed form: the last layer is solved for in one pass over the features, without epochs.

The given head answers for what the model knows, ridge regression for the user's classes, and a second ridge head, the
gate, decides between the two domains; all three are one linear layer, whose scales are those of the largest likelihood
of samples left out. The mathematics is `tuner.ridge`. In a bundle, a round of training is one solution, and a sample
that is forgotten leaves no trace.

Sources: PersEPhonEE's personal exits, solved instead of trained; SimpleShot (Wang et al., 2019) for class means;
Guo et al., 2017, for the temperature.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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

KIND = "closed-form"


class ClosedForm(Strategy[None]):
    """Solve for the last layer in closed form.

    It has no knobs: what has no price is chosen in the trial (`tuner.ridge.choice`).
    """

    name, stage = "closed_form", Stage.SPLIT
    writes = frozenset({Stage.SHAPE})
    excludes = frozenset({"growth", "exits", "distill"})

    def sample(self, draw: Draw, model: ModelInfo) -> None:
        """Draw nothing."""

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - there are none
        """Cut before the last block, whose layer is solved for."""
        edit = TailEdit.of(KIND, EditTraits(solves=True))
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same of every model
        """Return the usual number of global samples, few and none: heads cost little."""
        return ({"gdm.alpha": 0.05}, {}, {"gdm.alpha": 0.0})


def solved(tail: Tail, settings: Mapping[str, Any]) -> Any:  # noqa: ARG001 - there are none
    """Import the solver only where PyTorch is."""
    from tuner_closed_form.torch import ClosedFormTail

    return ClosedFormTail(tail)


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [ClosedForm()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise the edit wherever PyTorch runs the tail."""
    return {KIND: solved} if backend in {"torch", "onnxruntime"} else {}
