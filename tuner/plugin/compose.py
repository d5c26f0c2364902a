"""Compose a plan: each strategy is applied once, in stage order, and writes its own part only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tuner.errors import PlanError, TunerError, first_line
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import SHARED_STAGES, Scalar, Stage
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.knobs import Draw, Knob, ValueSource, Wanted, recording
from tuner.plugin.strategy import Strategy


class StrategyError(Exception):
    """A strategy raised an exception, which is the `__cause__`.

    Attributes:
        strategy: Name of the strategy.
    """

    def __init__(self, strategy: str, error: Exception) -> None:
        super().__init__(f"strategy {strategy!r}: {first_line(error)}")
        self.strategy = strategy


@dataclass(frozen=True, slots=True)
class Composed:
    """A composed plan.

    Attributes:
        plan: The plan, in its normal form.
        values: Value of every knob that was drawn, by name.
        knobs: The same knobs, with their ranges.
    """

    plan: TrialPlan
    values: dict[str, Scalar]
    knobs: dict[str, Knob]

    @property
    def searched(self) -> dict[str, Scalar]:
        """Values of the knobs that a search draws: of those with more than one value."""
        return {name: self.values[name] for name, knob in self.knobs.items() if not knob.fixed}


def compose(
    strategies: Sequence[Strategy[Any]],
    source: ValueSource,
    model: ModelInfo,
    task: TaskInfo,
    wanted: Mapping[str, Wanted] | None = None,
) -> Composed:
    """Apply every strategy, and bring the plan to its normal form.

    Args:
        strategies: Strategies that take part. Where several share a stage that takes one, a knob draws which (``by``).
        source: Gives each knob its value.
        model: The model as a chain of blocks.
        task: The task in numbers.
        wanted: The search space: what is wanted of each knob, by name.

    Raises:
        KnobError: The search space asks for a value that is not legal for this model.
        PlanError: A strategy wrote outside its stage, two strategies set one value, or the plan breaks a rule.
        StrategyError: A strategy raised anything else.
    """
    values: dict[str, Scalar] = {}
    knobs: dict[str, Knob] = {}
    draw = Draw(recording(source, values, knobs), "", wanted)
    plan = TrialPlan(model=model, task=task)
    for stage in Stage:
        owners: dict[str, str] = {}
        for strategy in _deciders(stage, strategies, draw):
            after = _applied(strategy, draw, plan)
            _check_edit(strategy, plan, after, owners)
            plan = after
    return Composed(normal_form(plan), values, knobs)


def _applied(strategy: Strategy[Any], draw: Draw, plan: TrialPlan) -> TrialPlan:
    try:
        return strategy.apply(plan, strategy.sample(draw.scoped(strategy.name), plan.model))
    except TunerError:
        raise
    except Exception as error:  # a plugin's strategy may raise anything
        raise StrategyError(strategy.name, error) from error


def _deciders(stage: Stage, strategies: Sequence[Strategy[Any]], draw: Draw) -> list[Strategy[Any]]:
    here = [strategy for strategy in strategies if strategy.stage is stage]
    if stage in SHARED_STAGES or not here:
        return here
    names = [strategy.name for strategy in here]
    start = next((strategy.name for strategy in here if not strategy.baseline), names[0])
    name = names[0] if len(names) == 1 else draw.scoped(stage.value).choice("by", names, start=start)
    return [strategy for strategy in here if strategy.name == name]


def _check_edit(strategy: Strategy[Any], before: TrialPlan, after: TrialPlan, owners: dict[str, str]) -> None:
    for part in fields(TrialPlan):
        if part.name != strategy.stage and getattr(before, part.name) != getattr(after, part.name):
            raise PlanError(
                f"strategy {strategy.name!r} may write {strategy.stage.value!r} only, but it wrote {part.name!r}"
            )
    if strategy.stage in SHARED_STAGES:
        old, new = getattr(before, strategy.stage), getattr(after, strategy.stage)
        if isinstance(old, tuple):
            _check_value(strategy, "", old, new, owners)
        else:
            for part in fields(old):
                _check_value(strategy, part.name, getattr(old, part.name), getattr(new, part.name), owners)


def _check_value(strategy: Strategy[Any], part: str, old: object, new: object, owners: dict[str, str]) -> None:
    where = f"{strategy.stage.value}.{part}".rstrip(".")
    if isinstance(old, tuple) and isinstance(new, tuple):
        if new[: len(old)] != old:
            raise PlanError(f"strategies may only add entries to {where}, but {strategy.name!r} changed or removed one")
    elif old != new:
        if part in owners:
            raise PlanError(f"strategies {owners[part]!r} and {strategy.name!r} both set {where}: use one of them")
        owners[part] = strategy.name
