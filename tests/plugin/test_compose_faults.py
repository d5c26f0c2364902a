"""What a strategy does wrong in composing a plan is named with the strategy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.plugin.edits import Edit, Placed, composed, edited, split
from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo
from tuner.plan.parts import Scalar, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import StrategyError, compose
from tuner.plugin.knobs import Draw
from tuner.plugin.sources import preferred_values
from tuner.plugin.strategy import Strategy


@pytest.mark.parametrize("result", [None, {"split": 1}])
def test_what_is_no_plan_is_refused_by_name(result: object) -> None:
    with pytest.raises(StrategyError, match=r"strategy 'one': apply must return a TrialPlan, but it returned"):
        composed(Edit("one", Stage.DATA, lambda _: result))  # type: ignore[arg-type, return-value]  # the mistake


def test_a_plan_that_is_changed_in_its_place_is_refused() -> None:
    def mutate(plan: TrialPlan) -> TrialPlan:
        object.__setattr__(plan, "split", 2)
        return plan

    def mutate_a_part(plan: TrialPlan) -> TrialPlan:
        object.__setattr__(plan.recipe, "epochs", 1)
        return plan

    for change in (mutate, mutate_a_part):
        with pytest.raises(StrategyError, match="apply must leave the plan it is given alone"):
            composed(Edit("one", Stage.SPLIT, change))


def test_an_exception_is_named_with_strategy_file_and_line() -> None:
    with pytest.raises(StrategyError, match=r"'one': apply raised ZeroDivisionError: .*\(edits\.py, line "):
        composed(Edit("one", Stage.DATA, lambda plan: replace(plan, split=1 // 0)))


class Twice(Edit):
    def sample(self, draw: Draw, model: ModelInfo) -> int:
        return draw.integer("n", 1, 2) + draw.integer("n", 1, model.num_blocks)


class Late(Edit):
    def sample(self, draw: Draw, model: ModelInfo) -> int:  # noqa: ARG002 - it draws later
        object.__setattr__(self, "draw", draw)
        return 0

    def apply(self, plan: TrialPlan, knobs: int) -> TrialPlan:  # noqa: ARG002 - it has none
        return replace(plan, split=self.draw.integer("n", 1, 2))  # type: ignore[attr-defined]  # the mistake


class Upside(Edit):
    def sample(self, draw: Draw, model: ModelInfo) -> int:  # noqa: ARG002 - the mistake is the range
        return draw.integer("n", 9, 1)


class Outside(Edit):
    def sample(self, draw: Draw, model: ModelInfo) -> int:  # noqa: ARG002 - the mistake is the start
        return draw.integer("n", 1, 3, start=7)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Twice("one", Stage.DATA), r"one\.n is drawn twice: draw it once, and keep its value"),
        (Late("one", Stage.SPLIT), r"one\.n is drawn after `sample` returned: draw it there"),
        (Upside("one", Stage.DATA), r"one\.n must have low ≤ high, but its range is \[9, 1\]"),
        (Outside("one", Stage.DATA), r"one\.n in \[1, 3\] must start inside its range, but start is 7"),
    ],
)
def test_a_knob_drawn_wrongly_is_the_strategys_fault(strategy: Strategy[Any], message: str) -> None:
    with pytest.raises(StrategyError, match=f"strategy 'one': .*{message}"):
        composed(strategy)


def test_a_knob_offers_the_same_strategies_whoever_is_barred_or_excluded() -> None:
    strategies = [
        Edit("freeze", Stage.SPLIT, split(1)),
        Placed("lora", Stage.SPLIT, split(2), excludes=frozenset({"grow"})),
        Edit("other", Stage.SPLIT, split(3)),
        Edit("grow", Stage.SHAPE, edited("grow")),
        Placed("drop", Stage.SHAPE, edited("drop"), excludes=frozenset({"grow"})),
    ]
    for barred in ((), ("lora",), ("lora", "freeze"), ("drop",)):
        for by in ("freeze", "lora", "other"):
            values: dict[str, Scalar] = {"split.by": by, "shape.by": "grow"}
            one = compose(
                strategies, preferred_values(values), example_model(4), example_task(), barred=frozenset(barred)
            )
            assert str(one.knobs["split.by"]) == "split.by in {freeze, lora, other}"
            assert str(one.knobs["shape.by"]) == "shape.by in {grow, drop}"
            decides = by if by not in barred else "freeze" if "freeze" not in barred else "other"
            assert one.plan.split == {"freeze": 1, "lora": 2, "other": 3}[decides]
            assert [edit.kind for edit in one.plan.shape] == ([] if decides == "lora" else ["grow"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: replace(plan, split=None), "split must be of type int, got None"),
        (lambda plan: replace(plan, split=1.5), r"split must be of type int, got 1\.5"),
        (lambda plan: replace(plan, split=99), r"split must be in \[0, 4\], got 99"),
        (lambda plan: replace(plan, split=4), "a tail block or an exit must train"),
    ],
)
def test_an_illegal_cut_is_the_fault_of_who_set_it(change: Callable[[TrialPlan], TrialPlan], message: str) -> None:
    with pytest.raises(StrategyError, match=f"strategy 'one': {message}"):
        composed(Edit("one", Stage.SPLIT, change), Edit("two", Stage.DATA))


@pytest.mark.parametrize("entry", ["dropout", None, 3])
def test_what_is_no_edit_is_refused_by_name(entry: object) -> None:
    with pytest.raises(StrategyError, match="strategy 'one': shape must hold TailEdit objects, got"):
        composed(Edit("one", Stage.SHAPE, lambda plan: replace(plan, shape=(entry,))))  # type: ignore[arg-type]  # the mistake
