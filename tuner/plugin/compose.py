"""Compose a plan: each strategy that takes part is applied once, in stage order, and writes its own part only."""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

from tuner.errors import KnobError, PlanError, RangeError
from tuner.plan.heads import HeadsPlan
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import (
    SHARED_STAGES,
    CachePlan,
    DataEdit,
    DataPlan,
    LossTerm,
    RecipePlan,
    RuntimePlan,
    Scalar,
    Stage,
    TailEdit,
)
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.knobs import Draw, Knob, ValueSource, Wanted
from tuner.plugin.load.calls import CALL_SECONDS, OverdueError, fault, limited
from tuner.plugin.sources import recording
from tuner.plugin.strategy import Strategy

_PARTS = fields(TrialPlan)
#: Parts that no strategy may write, and that take long to look at.
_LARGE = (ModelInfo, TaskInfo)
_TYPES: Mapping[Stage, type] = {
    Stage.SIZE: int,
    Stage.DATA: DataPlan,
    Stage.SPLIT: int,
    Stage.SHAPE: tuple,
    Stage.HEADS: HeadsPlan,
    Stage.LOSS: tuple,
    Stage.CACHE: CachePlan,
    Stage.RECIPE: RecipePlan,
    Stage.RUNTIME: RuntimePlan,
}
_ENTRIES: Mapping[Stage, type] = {Stage.DATA: DataEdit, Stage.SHAPE: TailEdit, Stage.LOSS: LossTerm}
#: What a value of a type has to be.
_FINE: Mapping[type, Callable[[Any], bool]] = {
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value),
    bool: lambda value: isinstance(value, bool),
    str: lambda value: isinstance(value, str),
}
#: Characters of a wrong value that a message shows.
_SHOWN = 120


class StrategyError(Exception):
    """A strategy raised an exception, which is then the `__cause__`, or broke a rule of strategies.

    Attributes:
        strategy: Name of the strategy.
        ends: Whether it took too long or tried to end the process, which costs the study more than a trial.
    """

    def __init__(self, strategy: str, rule: str, *, ends: bool = False) -> None:
        super().__init__(f"strategy {strategy!r}: {rule}")
        self.strategy, self.ends = strategy, ends


@dataclass(frozen=True, slots=True)
class Composed:
    """A composed plan, in its normal form.

    Attributes:
        values: Value of every knob that was drawn, by name; `knobs` has their ranges.
        editors: Name of the strategy that wrote an edit of the tail, data or batches, or a loss term, by its kind.
        changed: Names of the strategies that changed the plan, in their order.
        notes: How the plan differs from what the values give by themselves, and why.
    """

    plan: TrialPlan
    values: dict[str, Scalar]
    knobs: dict[str, Knob]
    editors: dict[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
    barred: Collection[str] = (),
    seconds: float = CALL_SECONDS,
) -> Composed:
    """Apply every strategy, and bring the plan to its normal form.

    Args:
        strategies: Strategies that take part. Where several share a stage that takes one, a knob draws which (``by``).
        source: Gives each knob its value.
        model: The model as a chain of blocks.
        task: The task in numbers.
        wanted: The search space: what is wanted of each knob, by name.
        barred: Names of strategies that take no further part; knobs still offer them.
        seconds: What it may take.

    Raises:
        KnobError: The search space asks for a value that is not legal for this model.
        PlanError: The plan breaks a rule.
        StrategyError: A strategy raised an exception, wrote what it may not, or two strategies set one value.
    """
    taking: list[Strategy[Any]] = []
    values, knobs, editors, changed = dict[str, Scalar](), dict[str, Knob](), dict[str, str](), list[str]()
    recorded = recording(source, values, knobs)
    plan, owners, refiners = TrialPlan(model=model, task=task), dict[str, str](), list[tuple[Strategy[Any], Any]]()
    try:
        with limited(seconds):
            for stage in Stage:
                for strategy in _deciders(stage, strategies, taking, barred, Draw(recorded, stage.value, wanted, task)):
                    taking.append(strategy)
                    drawn = _sampled(strategy, Draw(recorded, strategy.name, wanted, task), model)
                    after = _written(strategy, "apply", plan, drawn, frozenset({stage, *strategy.writes}), owners)
                    editors |= dict.fromkeys(_added(plan, after), strategy.name)
                    changed += [strategy.name] if after != plan else []
                    plan = replace(after, model=model.at(after.size)) if stage is Stage.SIZE else after
                    refiners += [(strategy, drawn)] if strategy.refines else []
            owners = {}
            for strategy, drawn in refiners:
                plan = _written(strategy, "refine", plan, drawn, strategy.refines, owners)
            return Composed(normal_form(plan), values, knobs, editors, tuple(changed))
    except PlanError as error:
        raise _blamed(str(error).removeprefix("plan: "), taking) from error
    except OverdueError as error:  # between two calls, or in what a strategy is, not what it does
        name = taking[-1].name if taking else strategies[0].name
        raise StrategyError(name, f"composing {fault(error)}", ends=True) from error


def _added(before: TrialPlan, after: TrialPlan) -> list[str]:
    """Return the kinds of the tail edits, loss terms, changes of batches and the data edit that a strategy added."""
    kinds = [edit.kind for edit in after.shape[len(before.shape) :]]
    kinds += [term.kind for term in after.loss[len(before.loss) :]]
    kinds += [change.kind for change in after.data.batches[len(before.data.batches) :]]
    edit = after.data.edit
    return kinds if edit is None or edit == before.data.edit else [*kinds, edit.kind]


def _blamed(rule: str, taking: Sequence[Strategy[Any]]) -> StrategyError | PlanError:
    """Return the error of the strategy that decides the part that a rule is about; of a rule about none the split's."""
    stage = next((stage for stage in Stage if rule.startswith(stage.value)), Stage.SPLIT)
    writers = [one for one in taking if stage is one.stage or stage in one.writes or stage in one.refines]
    return StrategyError(writers[-1].name, rule) if writers else PlanError(f"plan: {rule}")


def _sampled(strategy: Strategy[Any], draw: Draw, model: ModelInfo) -> Any:
    try:
        return strategy.sample(draw, model)
    except RangeError as error:
        raise StrategyError(strategy.name, str(error)) from error
    except (KnobError, KeyboardInterrupt):  # of what the search space asks for; of the user
        raise
    except BaseException as error:
        raise _failed(strategy, "sample", error) from error
    finally:
        draw.close()


def _failed(strategy: Strategy[Any], method: str, error: BaseException) -> StrategyError:
    """Return the error of a method that raised: a plugin's strategy may raise anything."""
    return StrategyError(strategy.name, f"{method} {fault(error)}", ends=not isinstance(error, Exception))


def _written(
    strategy: Strategy[Any], method: str, plan: TrialPlan, knobs: Any, allowed: frozenset[Stage], owners: dict[str, str]
) -> TrialPlan:
    """Return what a strategy made of a plan, if it wrote only what it may."""
    content = _content(plan)
    try:
        after = getattr(strategy, method)(plan, knobs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _failed(strategy, method, error) from error
    if not isinstance(after, TrialPlan):
        raise StrategyError(strategy.name, f"{method} must return a TrialPlan, but it returned {_short(after)}")
    if _content(plan) != content:
        raise StrategyError(
            strategy.name, f"{method} must leave the plan it is given alone: return dataclasses.replace(plan, …)"
        )
    for part in fields(TrialPlan):
        old, new = getattr(plan, part.name), getattr(after, part.name)
        if part.name not in allowed and old is not new and old != new:
            parts = " and ".join(repr(stage.value) for stage in Stage if stage in allowed)
            named = "writes" if method == "apply" else "refines"
            raise StrategyError(
                strategy.name,
                f"{method} may write {parts} only, but it wrote {part.name!r}: leave it, or add it to Strategy.{named}",
            )
    for stage in allowed:
        _check_types(strategy, stage, getattr(after, stage))
        if method == "refine" or stage in SHARED_STAGES:
            _claim(strategy, stage, getattr(plan, stage), getattr(after, stage), owners)
    return after


def _check_types(strategy: Strategy[Any], stage: Stage, value: object) -> None:
    """Require what a plan may hold: its parts, and numbers of the right kind in them."""
    if type(value) is not _TYPES[stage]:
        wanted, shown = _TYPES[stage].__name__, _short(value)
        raise StrategyError(strategy.name, f"{stage.value} must be of type {wanted}, got {shown}")
    entries = value if isinstance(value, tuple) else getattr(value, "batches", ())
    for entry in entries if isinstance(entries, tuple) else (entries,):
        if type(entry) is not _ENTRIES[stage]:
            wanted = _ENTRIES[stage].__name__
            raise StrategyError(strategy.name, f"{stage.value} must hold {wanted} objects, got {_short(entry)}")
    for part in value if isinstance(value, tuple) else (value, *entries):
        for name, wanted, is_fine in _numbers(type(part)):  # type: ignore[arg-type]  # every class can be hashed
            if not is_fine(own := getattr(part, name)):
                raise StrategyError(strategy.name, f"{stage.value}.{name} must be of type {wanted}, got {_short(own)}")


@cache
def _numbers(part: Hashable) -> tuple[tuple[str, str, Callable[[Any], bool]], ...]:
    """Return the numbers, Booleans and strings of a class of parts: their names, their types, and what is fine."""
    held = fields(part) if isinstance(part, type) and is_dataclass(part) else ()
    typed = ((one.name, one.type) for one in held if isinstance(one.type, type))
    return tuple((name, wanted.__name__, _FINE[wanted]) for name, wanted in typed if wanted in _FINE)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _content(plan: TrialPlan) -> tuple[object, ...]:
    """Return what a strategy could change of a plan in its place: parts are frozen, but nothing is safe."""
    parts = (getattr(plan, one.name) for one in _PARTS)
    return tuple(id(part) if isinstance(part, _LARGE) else _hashed(part) for part in parts)


def _hashed(part: object) -> object:
    try:
        return hash(part)
    except TypeError:  # a list where a tuple should be
        return repr(part)


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


def _deciders(
    stage: Stage,
    strategies: Sequence[Strategy[Any]],
    taking: Sequence[Strategy[Any]],
    barred: Collection[str],
    draw: Draw,
) -> list[Strategy[Any]]:
    """Return the strategies that take part in a stage, in their order.

    A knob always offers the same names, whatever was drawn before: where the drawn one is barred, or excluded by one
    that takes part already, the first that is not decides; in a shared stage, none of its group.
    """

    def is_free(strategy: Strategy[Any]) -> bool:
        return strategy.name not in barred and not any(_apart(strategy, other) for other in taking)

    here = [strategy for strategy in strategies if strategy.stage is stage]
    if stage in SHARED_STAGES:
        here = _in_order(here)
        for number, group in enumerate(_exclusive(here), start=1):
            name = _one_of(group, draw, "by" if number == 1 else f"by{number}")
            here = [strategy for strategy in here if strategy not in group or strategy.name == name]
        return [strategy for strategy in here if is_free(strategy)]
    if not here:
        return []
    name = _one_of(here, draw, "by")
    first = sorted(here, key=lambda strategy: (strategy.name != name, strategy.baseline, bool(strategy.writes)))
    return [strategy for strategy in first if is_free(strategy)][:1]


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
