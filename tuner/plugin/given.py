"""The training that a task asks for, as a strategy: it is tried before the search begins."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from tuner.errors import PlanError
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, Scalar, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy
from tuner.task.spec import GivenTraining

NAME = "given"


def with_given(strategies: Sequence[Strategy[Any]], training: GivenTraining | None) -> list[Strategy[Any]]:
    """Return the strategies, and one for what a task asks for, where another decides the cut in all other plans.

    Args:
        strategies: Strategies that take part.
        training: What the task asks for, if anything.
    """
    if training is None or not any(strategy.stage is Stage.SPLIT for strategy in strategies):
        return list(strategies)
    later = {Stage.SHAPE, Stage.HEADS, Stage.LOSS}
    others = frozenset(strategy.name for strategy in strategies if strategy.stage in later)

    asked = training

    class Given(Strategy[None]):
        """The cut and the recipe that the task asks for: nothing is stored, and nothing is added."""

        name, stage, baseline = NAME, Stage.SPLIT, True
        refines = frozenset({Stage.CACHE, Stage.RECIPE})
        excludes = others

        def sample(self, draw: Draw, model: ModelInfo) -> None:
            """Draw nothing."""

        def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - there are none
            """Freeze the first blocks, those that the task leaves alone."""
            return replace(plan, split=_cut(plan.model, asked.frozen_parameters))

        def refine(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - there are none
            """Set the recipe."""
            return replace(plan, recipe=asked.recipe, cache=CachePlan())

    return [*strategies, Given()]


def given_plans(strategies: Sequence[Strategy[Any]]) -> tuple[Mapping[str, Scalar], ...]:
    """Return what a task asks for as values of knobs; nothing where `with_given` added nothing."""
    return ({f"{Stage.SPLIT}.by": NAME},) if any(strategy.name == NAME for strategy in strategies) else ()


def _cut(model: ModelInfo, frozen: int) -> int:
    """Return the first block that trains, where the first ones with so many parameters do not.

    Raises:
        PlanError: They end within a block.
    """
    totals = list(accumulate((block.parameters for block in model.blocks), initial=0))
    if frozen not in totals:
        raise PlanError(f"plan: split: the {frozen:,} parameters that are to be frozen end within a block of the model")
    return totals.index(frozen)
