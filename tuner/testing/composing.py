"""Plans that strategies compose for the contracts, next to strategies that stand for those of others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import Stage, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, compose
from tuner.plugin.knobs import Draw, ValueSource
from tuner.plugin.sources import corners
from tuner.plugin.strategy import Strategy

#: Runs through a strategy's corners, per model; the ends of every knob come first.
MOST_CORNERS = 48
#: Kind of the edit that stands for another plugin's.
OTHER_EDIT = "another-edit"


@dataclass(frozen=True)
class Frozen(Strategy[None]):
    """Freezes the first share of the blocks, so that what depends on a frozen prefix is seen."""

    share: float
    name, stage = "frozen", Stage.SPLIT

    def sample(self, draw: Draw, model: ModelInfo) -> None:
        """Draw nothing."""

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        """Cut."""
        return replace(plan, split=int(plan.model.num_blocks * self.share))


class Another(Strategy[None]):
    """Edits the tail, as another plugin does."""

    name, stage = "another", Stage.SHAPE

    def sample(self, draw: Draw, model: ModelInfo) -> None:
        """Draw nothing."""

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        """Add the edit."""
        return replace(plan, shape=(*plan.shape, TailEdit(OTHER_EDIT)))


def composed_by(
    strategy: Strategy[Any],
    source: ValueSource,
    model: ModelInfo,
    task: TaskInfo,
    *,
    share: float = 0.5,
    others: Sequence[Strategy[Any]] = (),
) -> Composed:
    """Compose a plan of one strategy and of those that stand for others.

    Args:
        strategy: The one under test.
        source: Gives each knob its value.
        model: The model.
        task: The task.
        share: Share of the blocks that is frozen, unless the strategy cuts the model.
        others: Strategies that are applied before it.
    """
    cutting = [] if strategy.stage is Stage.SPLIT else [Frozen(share)]
    return compose([*cutting, *others, strategy], source, model, task)


def corners_of(
    strategy: Strategy[Any],
    model: ModelInfo,
    task: TaskInfo,
    *,
    share: float = 0.5,
    others: Sequence[Strategy[Any]] = (),
) -> Iterator[Composed]:
    """Yield the plans at the corners of a strategy's knobs; see `composed_by`."""
    plans: list[Composed] = []

    def run(source: ValueSource) -> None:
        plans.append(composed_by(strategy, source, model, task, share=share, others=others))

    for _ in corners(run, most=MOST_CORNERS):
        yield plans[-1]
