"""Plans that strategies compose for the contracts, next to strategies that stand for those of others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import TunerError
from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import DataPlan, LossTerm, Stage, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, StrategyError, compose
from tuner.plugin.knobs import Draw, ValueSource
from tuner.plugin.sources import corners
from tuner.plugin.strategy import Strategy

#: Runs through a strategy's corners, per model; the ends of every knob come first.
MOST_CORNERS = 48
#: Blocks of the model that is composed for.
MOST_BLOCKS = 4
#: Kind of what stands for another plugin's.
OTHER = "another"
#: Kind of what stands for another plugin's that changes while it trains.
CHANGING = "another-changing"


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


class Mixed(Strategy[None]):
    """Mixes in global samples, which some knobs are about."""

    name, stage = "mixed", Stage.DATA

    def sample(self, draw: Draw, model: ModelInfo) -> None:
        """Draw nothing."""

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        """Mix in some of each class."""
        return replace(plan, data=DataPlan(alpha=0.05))


@dataclass(frozen=True)
class Another(Strategy[None]):
    """Adds an entry to each part of a plan that several strategies write, before all of them: as another plugin may."""

    writes: frozenset[Stage]  # type: ignore[misc]  # an instance's own here
    name, stage = "another", Stage.SIZE

    def sample(self, draw: Draw, model: ModelInfo) -> None:
        """Draw nothing."""

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        """Add the entries."""
        edits = (TailEdit(OTHER),) if Stage.SHAPE in self.writes else ()
        terms = (LossTerm(OTHER, 1.0),) if Stage.LOSS in self.writes else ()
        return replace(plan, shape=(*plan.shape, *edits), loss=(*plan.loss, *terms))


def composed_by(
    strategy: Strategy[Any],
    source: ValueSource,
    model: ModelInfo,
    task: TaskInfo,
    *,
    share: float = 0.5,
    others: Sequence[Strategy[Any]] = (),
) -> Composed:
    """Compose a plan of one strategy and of those that stand for others, which are applied before it.

    `share` of the blocks is frozen, unless the strategy cuts the model.
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


def composes(strategy: Strategy[Any]) -> bool:
    """Return whether a strategy composes plans at all its corners."""
    try:
        return bool([*corners_of(strategy, example_model(MOST_BLOCKS), example_task())])
    except (TunerError, StrategyError):
        return False
