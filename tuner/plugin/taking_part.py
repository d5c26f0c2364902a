"""Which strategies take part in a plan: whose stage it is, who excludes whom, and what a knob draws."""

from collections.abc import Collection, Sequence
from typing import Any

from tuner.plan.parts import SHARED_STAGES, Stage
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy


def deciders(
    stage: Stage,
    strategies: Sequence[Strategy[Any]],
    taking: Sequence[Strategy[Any]],
    barred: Collection[str],
    draw: Draw,
) -> list[Strategy[Any]]:
    """Return the strategies that take part in a stage, in their order.

    A knob always offers the same names, whatever was drawn before: where the drawn one is barred, or excluded by one
    that takes part already, the first that is not decides; in a shared stage, none of its group.

    Args:
        stage: The stage.
        strategies: All strategies.
        taking: Those that take part in earlier stages.
        barred: Names of those that take no further part.
        draw: Draws the knobs of the stage.
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
