"""Global dataset mixing: training on a fraction of every global class, against forgetting.

Source: MoIL (University of Toronto, 2022), Algorithm 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import DataPlan, Draw, ModelInfo, Stage, Strategy, TrialPlan, hookimpl

MOST_ALPHA = 0.1


@dataclass(frozen=True, slots=True)
class Knobs:
    """`alpha`: fraction of every global class that is mixed in; 0 mixes nothing in."""

    alpha: float


class GlobalDatasetMixing(Strategy[Knobs]):
    """Mix a fraction α of every class of the global data into the local data."""

    name, stage = "gdm", Stage.DATA

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the range is the same for every model
        """Draw α in [0, 0.1]."""
        return Knobs(alpha=draw.number("alpha", 0.0, MOST_ALPHA, start=0.05))

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the fraction."""
        return replace(plan, data=DataPlan(alpha=knobs.alpha))


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [GlobalDatasetMixing()]
