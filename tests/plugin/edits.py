"""Strategies that edit a plan as a test says, and the plan that comes out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, DataPlan, Scalar, Stage, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import compose
from tuner.plugin.knobs import Draw
from tuner.plugin.sources import preferred_values
from tuner.plugin.strategy import Strategy


@dataclass(frozen=True)
class Edit(Strategy[int]):
    """Does one thing to the plan, and has one knob."""

    name: str  # type: ignore[misc]  # an instance's here, so that a test can have several
    stage: Stage  # type: ignore[misc]  # the same
    change: Callable[[TrialPlan], TrialPlan] = lambda plan: plan

    def sample(self, draw: Draw, model: ModelInfo) -> int:
        return draw.integer("n", 1, model.num_blocks)

    def apply(self, plan: TrialPlan, knobs: int) -> TrialPlan:  # noqa: ARG002 - the change is the test's
        return self.change(plan)


def composed(*strategies: Strategy[Any], values: dict[str, Scalar] | None = None) -> TrialPlan:
    return compose(strategies, preferred_values(values or {}), example_model(4), example_task()).plan


def alpha(value: float) -> Callable[[TrialPlan], TrialPlan]:
    return lambda plan: replace(plan, data=DataPlan(value))


def split(value: int) -> Callable[[TrialPlan], TrialPlan]:
    return lambda plan: replace(plan, split=value)


def cached(by: str) -> Callable[[TrialPlan], TrialPlan]:
    return lambda plan: replace(plan, cache=CachePlan(by, 8))


def edited(*kinds: str) -> Callable[[TrialPlan], TrialPlan]:
    return lambda plan: replace(plan, shape=(*plan.shape, *map(TailEdit, kinds)))


@dataclass(frozen=True)
class Placed(Edit):
    """Says whom it excludes and whom it follows."""

    excludes: frozenset[str] = frozenset()  # type: ignore[misc]  # an instance's here
    after: frozenset[str] = frozenset()  # type: ignore[misc]  # the same
