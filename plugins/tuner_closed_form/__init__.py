"""Heads in closed form: the last layer is solved for in one pass over the features, without epochs.

The given head answers for what the model knows, ridge regression for the user's classes, and a second ridge head, the
gate, decides between the two domains; all three are one linear layer, whose scales are those of the largest likelihood
of samples left out. The mathematics is `tuner.ridge`. In a bundle, a round of training is one solution, and a sample
that is forgotten leaves no trace.

Sources: PersEPhonEE's personal exits, solved instead of trained; SimpleShot (Wang et al., 2019) for class means;
Guo et al., 2017, for the temperature.
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

KIND = "closed-form"
#: Weight of the global samples of a joint head that is for the user's samples first.
PERSONAL = 0.0625


@dataclass(frozen=True, slots=True)
class Knobs:
    """`joint`: whether one ridge head scores the classes of both domains, where global samples are mixed in."""

    joint: bool = False


class ClosedForm(Strategy[Knobs]):
    """Solve for the last layer in closed form.

    Penalties and kinds of scores are chosen in the trial (`tuner.ridge.choice`). Whether the head is joint is searched:
    leave-one-out cannot tell, as the given head may have learned the global samples.
    """

    name, stage = "closed_form", Stage.SPLIT
    writes = frozenset({Stage.SHAPE})
    excludes = MappingProxyType(
        {
            "growth": "the head has no hidden width; recipe.solve_again solves for the head of a grown tail",
            "distill": "no step has a loss; recipe.solve_again solves for the head of a distilled tail",
        }
    )

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the same of every model
        """Draw whether the head is joint, where the task has global data."""
        has_known = draw.task is None or bool(draw.task.global_per_class)
        return Knobs(joint=has_known and draw.choice("joint", (False, True), start=False))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Cut before the last block, whose layer is solved for."""
        is_joint = knobs.joint and plan.global_samples > 0 and plan.task.targets.one_class
        edit = TailEdit.of(KIND, EditTraits(solves=True), **({"joint": True} if is_joint else {}))
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same of every model
        """Return both kinds of heads, with few global samples, the usual number, none and all: heads cost little."""
        joint = {"closed_form.joint": True}
        most = {**joint, "gdm.alpha": 1.0}
        return ({"gdm.alpha": 0.05}, joint, {"gdm.alpha": 0.0}, {}, {**joint, "gdm.weight": PERSONAL}, most)


def solved(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Import the solver only where PyTorch is."""
    from tuner_closed_form.torch import ClosedFormTail

    return ClosedFormTail(tail, joint=bool(settings.get("joint")))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [ClosedForm()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise the edit wherever PyTorch runs the tail."""
    return {KIND: solved} if backend in {"torch", "onnxruntime"} else {}
