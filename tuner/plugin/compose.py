"""Compose a plan: each strategy is applied once, in stage order, and writes its own part only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from tuner.errors import RangeError, TunerError, first_line, place_of
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import SHARED_STAGES, Scalar, Stage
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.knobs import Draw, Knob, ValueSource, Wanted
from tuner.plugin.sources import recording
from tuner.plugin.strategy import Strategy

_PARTS = fields(TrialPlan)
#: Parts that no strategy may write, and that take long to look at.
_LARGE = (ModelInfo, TaskInfo)


class StrategyError(Exception):
    """A strategy raised an exception, which is then the `__cause__`, or broke a rule of strategies.

    Attributes:
        strategy: Name of the strategy.
    """

    def __init__(self, strategy: str, rule: str) -> None:
        super().__init__(f"strategy {strategy!r}: {rule}")
        self.strategy = strategy


@dataclass(frozen=True, slots=True)
class Composed:
    """A composed plan.

    Attributes:
        plan: The plan, in its normal form.
        values: Value of every knob that was drawn, by name.
        knobs: The same knobs, with their ranges.
        editors: Name of the strategy that wrote a tail edit or a loss term, by its kind.
    """

    plan: TrialPlan
    values: dict[str, Scalar]
    knobs: dict[str, Knob]
    editors: dict[str, str] = field(default_factory=dict)

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
        PlanError: The plan breaks a rule.
        StrategyError: A strategy raised an exception, wrote what it may not, or two strategies set one value.
    """
    values: dict[str, Scalar] = {}
    knobs: dict[str, Knob] = {}
    editors: dict[str, str] = {}
    recorded = recording(source, values, knobs)
    plan = TrialPlan(model=model, task=task)
    owners: dict[str, str] = {}
    taking: list[Strategy[Any]] = []
    refiners: list[tuple[Strategy[Any], Any]] = []
    for stage in Stage:
        left = [one for one in strategies if not any(_apart(one, other) for other in taking)]
        for strategy in _deciders(stage, left, Draw(recorded, stage.value, wanted)):
            taking.append(strategy)
            drawn = _sampled(strategy, Draw(recorded, strategy.name, wanted), model)
            after = _written(strategy, "apply", plan, drawn, frozenset({stage, *strategy.writes}), owners)
            editors |= dict.fromkeys((edit.kind for edit in after.shape[len(plan.shape) :]), strategy.name)
            editors |= dict.fromkeys((term.kind for term in after.loss[len(plan.loss) :]), strategy.name)
            plan = after
            if strategy.refines:
                refiners.append((strategy, drawn))
    owners = {}
    for strategy, drawn in refiners:
        plan = _written(strategy, "refine", plan, drawn, strategy.refines, owners)
    return Composed(normal_form(plan), values, knobs, editors)


def _sampled(strategy: Strategy[Any], draw: Draw, model: ModelInfo) -> Any:
    try:
        return strategy.sample(draw, model)
    except RangeError as error:
        raise StrategyError(strategy.name, str(error)) from error
    except TunerError:
        raise
    except Exception as error:  # a plugin's strategy may raise anything
        raise StrategyError(strategy.name, f"sample raised {first_line(error)}{place_of(error)}") from error
    finally:
        draw.close()


def _written(
    strategy: Strategy[Any],
    method: str,
    plan: TrialPlan,
    knobs: Any,
    allowed: frozenset[Stage],
    owners: dict[str, str],
) -> TrialPlan:
    """Return what a strategy made of a plan, if it wrote only what it may."""
    before, content = replace(plan), _content(plan)
    try:
        after = getattr(strategy, method)(plan, knobs)
    except Exception as error:  # a plugin's strategy may raise anything
        raise StrategyError(strategy.name, f"{method} raised {first_line(error)}{place_of(error)}") from error
    if not isinstance(after, TrialPlan):
        raise StrategyError(strategy.name, f"{method} must return a TrialPlan, but it returned {after!r}")
    if _content(plan) != content:
        raise StrategyError(
            strategy.name, f"{method} must leave the plan it is given alone: return dataclasses.replace(plan, …)"
        )
    for part in fields(TrialPlan):
        if part.name not in allowed and getattr(before, part.name) != getattr(after, part.name):
            parts = " and ".join(repr(stage.value) for stage in Stage if stage in allowed)
            raise StrategyError(strategy.name, f"{method} may write {parts} only, but it wrote {part.name!r}")
    for stage in allowed:
        if method == "refine" or stage in SHARED_STAGES:
            _claim(strategy, stage, getattr(before, stage), getattr(after, stage), owners)
    return after


def _content(plan: TrialPlan) -> tuple[object, ...]:
    """Return what a strategy could change of a plan in its place: parts are frozen, but nothing is safe."""
    parts = (getattr(plan, one.name) for one in _PARTS)
    return tuple(id(part) if isinstance(part, _LARGE) else repr(part) for part in parts)


def _deciders(stage: Stage, strategies: Sequence[Strategy[Any]], draw: Draw) -> list[Strategy[Any]]:
    """Return the strategies that take part in a stage, in their order."""
    here = [strategy for strategy in strategies if strategy.stage is stage]
    if stage in SHARED_STAGES:
        for number, group in enumerate(_exclusive(here), start=1):
            name = _one_of(group, draw, "by" if number == 1 else f"by{number}")
            here = [strategy for strategy in here if strategy not in group or strategy.name == name]
        return _in_order(here)
    if not here:
        return []
    name = _one_of(here, draw, "by")
    return [strategy for strategy in here if strategy.name == name]


def _one_of(group: Sequence[Strategy[Any]], draw: Draw, knob: str) -> str:
    names = [strategy.name for strategy in group]
    alone = [strategy.name for strategy in group if not strategy.baseline and not strategy.writes]
    start = next(iter(alone), names[0])
    return names[0] if len(names) == 1 else draw.choice(knob, names, start=start)


def _exclusive(strategies: Sequence[Strategy[Any]]) -> list[list[Strategy[Any]]]:
    """Return groups of strategies of which one takes part at a time."""
    groups: list[list[Strategy[Any]]] = []
    for strategy in strategies:
        joined = [group for group in groups if any(_apart(strategy, other) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), strategy])
    return [group for group in groups if len(group) > 1]


def _apart(one: Strategy[Any], other: Strategy[Any]) -> bool:
    return one.name in other.excludes or other.name in one.excludes


def _in_order(strategies: Sequence[Strategy[Any]]) -> list[Strategy[Any]]:
    """Return strategies so that each comes after those it names; else in the order given."""
    ordered: list[Strategy[Any]] = []
    waiting = list(strategies)
    while waiting:
        names = {strategy.name for strategy in waiting}
        ready = next((one for one in waiting if not one.after & (names - {one.name})), waiting[0])  # a circle is cut
        waiting.remove(ready)
        ordered.append(ready)
    return ordered


def _claim(strategy: Strategy[Any], stage: Stage, old: object, new: object, owners: dict[str, str]) -> None:
    """Note what a strategy set, and refuse what another one has set."""
    if isinstance(old, tuple) or not is_dataclass(old):
        _claim_value(strategy, stage.value, old, new, owners)
        return
    for part in fields(old):
        _claim_value(strategy, f"{stage.value}.{part.name}", getattr(old, part.name), getattr(new, part.name), owners)


def _claim_value(strategy: Strategy[Any], where: str, old: object, new: object, owners: dict[str, str]) -> None:
    if isinstance(old, tuple):
        if not isinstance(new, tuple):
            raise StrategyError(strategy.name, f"{where} must be a tuple, got {new!r}: return (*plan.{where}, …)")
        if new[: len(old)] != old:
            raise StrategyError(strategy.name, f"entries may only be added to {where}, but it changed or removed one")
    elif old != new:
        if where in owners:
            raise StrategyError(strategy.name, f"{owners[where]!r} sets {where} too: use one of them")
        owners[where] = strategy.name
