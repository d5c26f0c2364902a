"""Width growth: a tail that starts narrow, and whose layers grow while it trains where growth pays.

Source: MDLdroidLite (SenSys 2020) and its journal version: release-and-inhibit control (RIC).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import (
    Draw,
    EditTraits,
    Lowering,
    ModelInfo,
    Objective,
    Scalar,
    Stage,
    Strategy,
    Tail,
    TailEdit,
    TrialPlan,
    hookimpl,
)
from tuner_growth.edit import Edit

#: Edits by mode: fresh weights everywhere, or the given weights' largest channels.
KINDS = {"scratch": "grow-scratch", "tail": "grow-tail"}
GROWS = EditTraits(changes_shapes=True, trains_norms=True, traceable=False, keeps_weights=False)
NO_GROWTH = "none"
CONTROLLERS = ("ric", "fixed", "linear", "exponential")
ADAPTERS = ("dspa", "net2wider", "net2wider-noisy", "cgap", "nest", "random")


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about growth.

    Attributes:
        mode: ``none`` leaves the tail as it is, ``tail`` starts from the given weights, ``scratch`` from fresh ones.
        edit: Rules of the growth; None without growth.
    """

    mode: str
    edit: Edit | None


class Growth(Strategy[Knobs]):
    """Start the trained blocks narrow, and let their hidden widths grow."""

    name, stage = "growth", Stage.SHAPE
    objectives = ("parameters", "mean_flops")

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - fractions are the same for every model
        """Draw whether to grow and from which weights, then the rules."""
        mode = draw.choice("mode", (NO_GROWTH, *KINDS))
        if mode == NO_GROWTH:
            return Knobs(mode, None)
        start = draw.number("start", 0.02, 1.0, log=True)
        cap, flops = (draw.number(name, 0.02, 1.0, log=True) for name in ("cap", "flops"))
        controller = draw.choice("controller", CONTROLLERS)
        horizon = draw.integer("horizon", 1, 5) if controller == "ric" else 1
        penalty = draw.number("penalty", 0.1, 1.0) if controller == "ric" else 0.0
        adapter = draw.choice("adapter", ADAPTERS) if controller != "fixed" else "random"
        begin = min(start, cap, flops)  # what begins above a cap would be refused
        return Knobs(mode, Edit(begin, controller, cap, flops, adapter, horizon, penalty))

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        """Return a growth from each kind of weights, of the deepest cut that the model's ladder has."""
        deepest = max(model.depths, default=model.num_blocks)
        shared = {"freeze.trainable_blocks": deepest, "growth.cap": 1.0, "growth.flops": 1.0}
        return tuple({"growth.mode": mode, **shared} for mode in reversed(KINDS))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Add the edit, unless only the last of several blocks trains: the head has no hidden width."""
        if knobs.edit is None or plan.trainable == 1 < plan.model.num_blocks:
            return plan
        return replace(plan, shape=(*plan.shape, TailEdit(KINDS[knobs.mode], knobs.edit.settings, GROWS)))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Growth()]


@hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:
    """Realise both modes on PyTorch."""
    if backend != "torch":
        return {}
    return {KINDS["scratch"]: _from_scratch, KINDS["tail"]: _from_tail}


@hookimpl
def tuner_objectives() -> Iterable[Objective]:
    """Offer the size of the whole model, and the cost of a prediction."""
    return [Objective("parameters", "minimise"), Objective("flops", "minimise", "FLOP")]


def _from_scratch(tail: Tail, settings: Mapping[str, Any]) -> Any:
    from tuner_growth.torch.tail import GrowingTail

    return GrowingTail(tail.module, Edit(**settings), scratch=True)


def _from_tail(tail: Tail, settings: Mapping[str, Any]) -> Any:
    from tuner_growth.torch.tail import GrowingTail

    return GrowingTail(tail.module, Edit(**settings), scratch=False)
