"""From strategies and values to one plan: each strategy once, in stage order, and only in its own part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tuner.errors import PlanError
from tuner.knobs import Draw, Knob, Scalar, Source, Wanted, recording
from tuner.plan import SHARED_STAGES, ModelInfo, Stage, TaskInfo, TrialPlan, normal_form
from tuner.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Composed:
    """A plan, the value of every knob that led to it, and what each could have been."""

    plan: TrialPlan
    values: dict[str, Scalar]
    knobs: dict[str, Knob]


def compose(
    strategies: Sequence[Strategy[Any]],
    source: Source,
    model: ModelInfo,
    task: TaskInfo,
    wanted: Mapping[str, Wanted] | None = None,
) -> Composed:
    """Let every strategy have its say, and bring the plan to its normal form.

    Args:
        strategies: Those that take part; a stage of several exclusive ones draws who decides (``cache.by``).
        source: Where values come from.
        model: The model's blocks.
        task: The task's sizes.
        wanted: What the search space wants of each knob.

    Raises:
        KnobError: The search space wants a value that is not legal for this model.
        PlanError: A strategy wrote outside its stage, two claimed one value, or the plan breaks a rule.
    """
    values: dict[str, Scalar] = {}
    knobs: dict[str, Knob] = {}
    draw = Draw(recording(source, values, knobs), "", wanted)
    plan = TrialPlan(model=model, task=task)
    for stage in Stage:
        owners: dict[str, str] = {}
        for strategy in _deciders(stage, strategies, draw):
            drawn = strategy.sample(draw.scoped(strategy.name), model)
            after = strategy.apply(plan, drawn)
            _check_edit(strategy, plan, after, owners)
            plan = after
    return Composed(normal_form(plan), values, knobs)


def _deciders(stage: Stage, strategies: Sequence[Strategy[Any]], draw: Draw) -> list[Strategy[Any]]:
    here = [strategy for strategy in strategies if strategy.stage is stage]
    if stage in SHARED_STAGES or not here:
        return here
    names = [strategy.name for strategy in here]
    who = names[0] if len(names) == 1 else draw.scoped(stage.value).choice("by", names)
    return [strategy for strategy in here if strategy.name == who]


def _check_edit(strategy: Strategy[Any], before: TrialPlan, after: TrialPlan, owners: dict[str, str]) -> None:
    for one in fields(TrialPlan):
        if one.name != strategy.stage and getattr(before, one.name) != getattr(after, one.name):
            raise PlanError(f"strategy {strategy.name!r} may write {strategy.stage.value!r}, but it wrote {one.name!r}")
    if strategy.stage in SHARED_STAGES:
        old, new = getattr(before, strategy.stage), getattr(after, strategy.stage)
        parts = [one.name for one in fields(old)] if not isinstance(old, tuple) else [""]
        for part in parts:
            _check_part(strategy, part, *((getattr(old, part), getattr(new, part)) if part else (old, new)), owners)


def _check_part(strategy: Strategy[Any], part: str, old: object, new: object, owners: dict[str, str]) -> None:
    where = f"{strategy.stage.value}.{part}".rstrip(".")
    if isinstance(old, tuple) and isinstance(new, tuple):
        if new[: len(old)] != old:
            raise PlanError(f"{where} only grows, but strategy {strategy.name!r} took an entry out of it")
    elif old != new:
        if part in owners:
            raise PlanError(f"strategies {owners[part]!r} and {strategy.name!r} both set {where}: use one of them")
        owners[part] = strategy.name
