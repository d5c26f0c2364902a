"""Width growth: a tail that starts narrow, and whose layers grow while it trains where growth pays.

Source: MDLdroidLite (SenSys 2020) and its journal version: release-and-inhibit control (RIC).
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tuner.backends.base import Lowering
from tuner.hookspecs import hookimpl
from tuner.knobs import Draw
from tuner.plan import ModelInfo, Stage, TailEdit, TrialPlan
from tuner.results.objectives import Objective
from tuner.strategy import Strategy

#: Edits by mode: fresh weights everywhere, or the given weights' largest channels.
KINDS = {"scratch": "grow-scratch", "tail": "grow-tail"}
NO_GROWTH = "none"
CONTROLLERS = ("ric", "fixed", "linear", "exponential")
ADAPTERS = ("dspa", "net2wider", "net2wider-noisy", "cgap", "nest", "random")


@dataclass(frozen=True, slots=True)
class Edit:
    """The rules of a growth, as they stand in a plan.

    Attributes:
        start: Fraction of a convolution's channels that the tail starts with; linears start with a fifth of it.
        controller: ``ric`` decides by value, ``linear`` and ``exponential`` grow by steps, ``fixed`` stays.
        cap: Fraction of the full tail's parameters that is not exceeded.
        flops: Fraction of the full tail's FLOPs that is not exceeded.
        adapter: How newborn channels get their weights.
        horizon: Epochs that ``ric`` looks ahead.
        penalty: What ``ric`` makes added cost count at first, η.
    """

    start: float
    controller: str
    cap: float = 1.0
    flops: float = 1.0
    adapter: str = "random"
    horizon: int = 1
    penalty: float = 0.0

    @property
    def settings(self) -> tuple[tuple[str, Any], ...]:
        """What differs from the defaults, sorted by name."""
        stated = {one.name: one.default for one in fields(self)}
        return tuple(sorted((name, value) for name, value in asdict(self).items() if value != stated[name]))


@dataclass(frozen=True, slots=True)
class Knobs:
    """`mode`: ``none`` leaves the tail alone, ``tail`` keeps given weights, ``scratch`` none. `edit`: how it grows."""

    mode: str
    edit: Edit | None


class Growth(Strategy[Knobs]):
    """Start the trained blocks narrow, and let their hidden widths grow."""

    name, stage = "growth", Stage.SHAPE

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - fractions are the same for every model
        """Draw whether to grow and from what, then the rule."""
        mode = draw.choice("mode", (NO_GROWTH, *KINDS))
        if mode == NO_GROWTH:
            return Knobs(mode, None)
        start = draw.number("start", 0.02, 1.0, log=True)
        cap, flops = (draw.number(name, 0.02, 1.0, log=True) for name in ("cap", "flops"))
        controller = draw.choice("controller", CONTROLLERS)
        horizon = draw.integer("horizon", 1, 5) if controller == "ric" else 1
        penalty = draw.number("penalty", 0.1, 1.0) if controller == "ric" else 0.0
        adapter = draw.choice("adapter", ADAPTERS) if controller != "fixed" else "random"
        return Knobs(mode, Edit(start, controller, cap, flops, adapter, horizon, penalty))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Add the edit, unless only the last of several blocks trains: the head has no hidden width."""
        if knobs.edit is None or plan.trainable == 1 < plan.model.num_blocks:
            return plan
        return replace(plan, shape=(*plan.shape, TailEdit(KINDS[knobs.mode], knobs.edit.settings)))


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
    """Offer the size of the whole model, and what a prediction costs."""
    return [Objective("parameters", "minimise"), Objective("flops", "minimise", "FLOP")]


def _from_scratch(tail: Any, settings: Mapping[str, Any]) -> Any:
    from tuner_growth.torch.tail import GrowingTail

    return GrowingTail(tail, Edit(**settings), scratch=True)


def _from_tail(tail: Any, settings: Mapping[str, Any]) -> Any:
    from tuner_growth.torch.tail import GrowingTail

    return GrowingTail(tail, Edit(**settings), scratch=False)
