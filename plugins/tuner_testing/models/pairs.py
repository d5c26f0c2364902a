"""Which strategies, and settings of the core's own, go together in one plan, found out by composing such plans."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

from tuner.errors import TunerError
from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo, Sized, TaskInfo
from tuner.plan.parts import SHARED_STAGES, Scalar, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, StrategyError, compose
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.plugin.sources import preferred_values
from tuner.plugin.strategy import Strategy

#: Settings of the core's own strategies that count as members of a pair, and the knobs that set them.
SETTINGS: Mapping[str, Mapping[str, Scalar]] = {
    "head solved again": {"recipe.solve_again": True},
    "random changes": {"cache.augment": 1.0},
    "int8": {"runtime.precision": "int8"},
    "onnxruntime": {"runtime.backend": "onnxruntime"},
}
#: Training again on the device, from a bundle that was exported with ``--trainable``: no setting of a plan.
ROUNDS = "rounds"
#: Other values than those that knobs start with, so that what a member sets differs from what it is without it.
PLAIN: Mapping[str, Scalar] = {"recipe.solve_again": False, "recipe.epochs": 2, "runtime.threads": 1, "gdm.alpha": 0.3}
#: Strategies of every plan: those that decide a part which nothing else here decides.
ALWAYS = ("gdm", "freeze", "cache", "recipe", "runtime")
#: Why the core leaves one of two out (`tuner.plan.trial.normal_form`).
LEFT_OUT: Mapping[frozenset[str], str] = {
    frozenset(pair): reason
    for *pair, reason in (
        ("closed_form", "head solved again", "the head is solved for already"),
        ("closed_form", "random changes", "it is solved for from each sample once, as it is: leave-one-out needs that"),
        (
            "exits",
            "int8",
            "exits are stored and run in one pass over the frozen blocks in float32: not built in 8 bits",
        ),
    )
}
BLOCKS = 8


@dataclass(frozen=True)
class Pairs:
    """Which members, strategies and `SETTINGS`, go together on a model and a task; `host` has them."""

    host: Host
    model: ModelInfo
    task: TaskInfo

    @cached_property
    def members(self) -> tuple[str, ...]:
        """Names of the strategies, by stage, that are not in every plan anyway; then of the settings."""
        offered = sorted(self.host.strategies.values(), key=lambda one: [*Stage].index(one.stage))
        names = [one.name for one in offered if one.name not in ALWAYS and not (one.baseline and one.name == "none")]
        return (*names, *SETTINGS, ROUNDS)

    def reasons(self) -> dict[tuple[str, str], str]:
        """Return for every two members why they do not go together; an empty text where they do."""
        return {pair: self.reason(pair) for pair in combinations(self.members, 2)}

    def reason(self, names: Collection[str]) -> str:
        """Return why some members do not go together; an empty text where they do."""
        found = self.plan(names)
        return found if isinstance(found, str) else ""

    def plan(self, names: Collection[str]) -> TrialPlan | str:
        """Return a plan in which every one of some members has an effect, or why there is none."""
        for one, other in combinations(sorted(names), 2):
            if reason := self._apart(one, other):
                return reason
        reason = ""
        for values in self._values(names):
            found = self._composed(names, values)
            if isinstance(found, TrialPlan):
                return found
            reason = reason or found
        return reason or f"{' and '.join(names)} have no effect together"

    def groups(self) -> list[tuple[str, ...]]:
        """Return few groups of members that go together, in which every two that do are together once at least."""
        reasons, groups = self.reasons(), list[tuple[str, ...]]()
        apart = {frozenset(pair) for pair, reason in reasons.items() if reason}
        open_pairs = {pair for pair, reason in reasons.items() if not reason}
        while open_pairs:
            group: tuple[str, ...] = min(open_pairs, key=lambda pair: [*map(self.members.index, pair)])
            for name in self.members:
                new = [{name, other} for other in group]
                gains = name not in group and any({*pair} in new for pair in open_pairs)
                if gains and not any(frozenset(pair) in apart for pair in new) and not self.reason((*group, name)):
                    group = (*group, name)
            open_pairs -= {pair for pair in open_pairs if {*pair} <= {*group}}
            groups.append(group)
        return groups

    def table(self) -> str:
        """Return the matrix as Markdown: a dot where two go together, else the number of the reason below it."""
        reasons, names = self.reasons(), self.members
        numbers = {reason: at for at, reason in enumerate(dict.fromkeys(filter(None, reasons.values())), start=1)}
        lines = [f"| | {' | '.join(names[:-1])} |", f"|{'---|' * len(names)}"]
        for at, name in enumerate(names[1:], start=1):
            cells = [str(numbers.get(reasons[other, name], "●")) for other in names[:at]]
            lines.append(f"| {' | '.join([name, *cells, *[''] * (len(names) - 1 - at)])} |")
        return "\n".join([*lines, "", *(f"{number}. {reason}" for reason, number in numbers.items())])

    def _apart(self, one: str, other: str) -> str:
        """Return why two members exclude each other by what they say; an empty text where they do not."""
        if reason := LEFT_OUT.get(frozenset({one, other})):
            return reason
        first, second = (self.host.strategies.get(name) for name in (one, other))
        if first is None or second is None:
            return ""
        for strategy, name in ((first, other), (second, one)):
            if name in strategy.excludes:
                reasons = strategy.excludes if isinstance(strategy.excludes, Mapping) else {}
                return str(reasons.get(name, f"{strategy.name} excludes {name}"))
        if first.stage is second.stage and first.stage not in SHARED_STAGES:
            return f"each decides the {first.stage.value} of a plan"
        return ""

    def _values(self, names: Collection[str]) -> Iterator[dict[str, Scalar]]:
        """Yield values of knobs by which all of some members may take part: of each, what it wants to be tried with."""
        chosen: dict[str, Scalar] = {}
        for name in names:
            chosen |= SETTINGS.get(name, {})
        strategies = [self.host.strategies[name] for name in names if name in self.host.strategies]
        wanted = [(*strategy.anchors(self.model), {}) for strategy in strategies]
        chosen |= {f"{one.stage.value}.{by}": one.name for one in strategies for by in ("by", "by2")}
        deep = ("freeze", *names)
        depths = [{f"{name}.trainable_blocks": blocks for name in deep} for blocks in self.model.depths]
        for *own, depth in product(*wanted, ({}, *depths)):
            values = dict[str, Scalar]()
            for part in (*own, chosen, depth):
                values |= part
            yield values

    def _composed(self, names: Collection[str], values: Mapping[str, Scalar]) -> TrialPlan | str:
        """Return the plan of some values if every member has an effect in it, else why not; no text for no effect."""
        found = self._compose(names, values)
        if isinstance(found, str):
            return found
        plan = found.plan
        reason = self.host.backends[plan.runtime.backend].supports(plan)
        reason = reason or self.host.extensions(plan.runtime.backend).lacking(plan)
        if reason:
            return reason.rpartition(": ")[0] or reason
        again = all(edit.traits.trains_again for edit in plan.shape)
        if ROUNDS in names and not again and not plan.heads.exits:  # rounds train the exits alone
            return "a round trains the model's own layers, and the edit of the tail makes others"
        for name in names:
            if name == ROUNDS:
                continue
            less = {knob: value for knob, value in values.items() if knob not in SETTINGS.get(name, {})}
            without = self._compose([other for other in names if other != name], less)
            if isinstance(without, Composed) and without.plan.key() == plan.key():
                return ""
        return plan

    def _compose(self, names: Collection[str], values: Mapping[str, Scalar]) -> Composed | str:
        strategies: list[Strategy[Any]] = [self.host.strategies[name] for name in names if name in self.host.strategies]
        taken = {strategy.stage for strategy in strategies if strategy.stage not in SHARED_STAGES}
        excluded = {name for strategy in strategies for name in strategy.excludes}
        base = [self.host.strategies[name] for name in ALWAYS if name not in excluded and name in self.host.strategies]
        strategies += [strategy for strategy in base if strategy.stage not in taken]
        try:
            return compose(strategies, preferred_values({**PLAIN, **values}), self.model, self.task)
        except (TunerError, StrategyError) as error:
            return str(error)


def installed_pairs() -> Pairs:
    """Return the pairs of all that is installed, on a model of `BLOCKS` equal blocks with samples of every kind."""
    model = example_model(BLOCKS)
    smaller = tuple(replace(block, in_shape=(8, 2, 2), flops=block.flops // 4) for block in model.blocks)
    model = replace(model, sizes=(Sized(2, smaller),))
    return Pairs(build_host(), model, replace(example_task(), augment=("flip", "shift")))
