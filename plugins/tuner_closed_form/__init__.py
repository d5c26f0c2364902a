"""Heads in closed form: the last layer is solved for in one pass over the features, without epochs.

The given head answers for what the model knows, ridge regression for the user's classes, and a second ridge head, the
gate, decides between the two domains; all three are one linear layer, whose scales are those of the largest likelihood
of samples left out. The mathematics is `tuner.ridge`. In a bundle, a round of training is one solution, and a sample
that is forgotten leaves no trace.

Sources: PersEPhonEE's personal exits, solved instead of trained; SimpleShot (Wang et al., 2019) for class means;
Guo et al., 2017, for the temperature.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about a head in closed form.

    Attributes:
        ridge: Ridge penalty, in samples: it pulls the weights to zero as much as so many samples pull them elsewhere.
        prior: Factor of the log prior of the user's classes.
        local_weight: What the user's samples count in all, where those of the global data count one.
        scores: What scores the user's classes: a ridge head, or class means.
    """

    ridge: float
    prior: float
    local_weight: float
    scores: str


class ClosedForm(Strategy[Knobs]):
    """Solve for the last layer in closed form."""

    name, stage = "closed_form", Stage.SPLIT
    writes = frozenset({Stage.SHAPE})
    excludes = frozenset({"growth", "exits", "distill"})

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the same of every model
        """Draw the penalty, the weights of prior and user, and what scores the user's classes."""
        return Knobs(
            ridge=draw.number("ridge", 1.0, 3000.0, start=300.0, log=True),
            prior=draw.choice("prior", (0.0, 0.5, 1.0), start=0.0),
            local_weight=draw.choice("local_weight", (0.3, 1.0, 3.0), start=1.0),
            scores=draw.choice("scores", ("ridge", "means"), start="ridge"),
        )

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Cut before the last block, whose layer is solved for; without classes there is no prior."""
        if not plan.task.targets.has_classes:
            knobs = replace(knobs, prior=0.0, scores="ridge")
        ridge = knobs.ridge if knobs.scores == "ridge" else 300.0  # of the gate alone
        edit = TailEdit.of(KIND, EditTraits(solves=True), **asdict(replace(knobs, ridge=ridge)))
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same of every model
        """Return the start values with few global samples, with the usual number and with none: heads cost little."""
        return ({"gdm.alpha": 0.05}, {}, {"gdm.alpha": 0.0})


def solved(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Import the solver only where PyTorch is."""
    from tuner_closed_form.torch import ClosedFormTail

    return ClosedFormTail(tail, settings)


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [ClosedForm()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise the edit wherever PyTorch runs the tail."""
    return {KIND: solved} if backend in {"torch", "onnxruntime"} else {}
