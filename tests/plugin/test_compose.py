"""Plans composed from strategies: the order of stages, what each may write, and the normal form."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.plugin.edits import Edit, Placed, alpha, cached, composed, edited, split
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, RecipePlan, Scalar, Stage, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import StrategyError, compose
from tuner.plugin.core import SingleStage
from tuner.plugin.knobs import Wanted
from tuner.plugin.sources import fixed_values, preferred_values
from tuner.plugin.strategy import Strategy


def test_without_strategies_the_whole_model_trains() -> None:
    assert composed() == TrialPlan(example_model(4), example_task())


def test_strategies_act_in_stage_order_whatever_order_they_come_in() -> None:
    seen: list[str] = []

    def noting(stage: Stage) -> Edit:
        return Edit(f"of_{stage.value}", stage, lambda plan: seen.append(stage.value) or plan)  # type: ignore[func-returns-value]  # append's None is the point

    composed(*(noting(stage) for stage in reversed(Stage)))
    assert seen == [stage.value for stage in Stage]
    assert len(seen) == 9


def test_values_and_knobs_come_back_with_the_plan() -> None:
    one = compose([Edit("one", Stage.RECIPE)], preferred_values({"one.n": 3}), example_model(4), example_task())
    assert one.values == {"one.n": 3}  # a single one that decides a stage is not drawn
    assert [str(knob) for knob in one.knobs.values()] == ["one.n in [1, 4]"]


def test_two_owners_of_one_value_are_both_named() -> None:
    with pytest.raises(StrategyError, match=r"strategy 'two': 'one' sets data\.alpha too: use one of them"):
        composed(Edit("one", Stage.DATA, alpha(0.1)), Edit("two", Stage.DATA, alpha(0.2)))
    with pytest.raises(StrategyError, match=r"strategy 'two': 'one' sets heads\.mode too"):
        composed(
            Edit("one", Stage.HEADS, lambda plan: replace(plan, heads=HeadsPlan("with-tail"))),
            Edit("two", Stage.HEADS, lambda plan: replace(plan, heads=HeadsPlan("exits-only"))),
        )


def test_one_that_leaves_a_value_alone_does_not_own_it() -> None:
    assert composed(Edit("one", Stage.DATA), Edit("two", Stage.DATA, alpha(0.2))).data.alpha == 0.2


def test_writing_outside_the_stage_names_strategy_and_both_parts() -> None:
    with pytest.raises(StrategyError, match="strategy 'one': apply may write 'data' only, but it wrote 'split'"):
        composed(Edit("one", Stage.DATA, split(2)))
    with pytest.raises(StrategyError, match="strategy 'one': apply may write 'split' only, but it wrote 'model'"):
        composed(Edit("one", Stage.SPLIT, lambda plan: replace(plan, model=example_model(9))))


def test_several_strategies_add_to_the_tail() -> None:
    plan = composed(Edit("one", Stage.SHAPE, edited("a")), Edit("two", Stage.SHAPE, edited("b", "c")))
    assert [edit.kind for edit in plan.shape] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: replace(plan, shape=()),
        lambda plan: replace(plan, shape=(TailEdit("mine"),)),
        lambda plan: replace(plan, shape=(TailEdit("mine"), *plan.shape)),
    ],
)
def test_a_tuple_only_grows(change: Callable[[TrialPlan], TrialPlan]) -> None:
    with pytest.raises(StrategyError, match="'two': entries may only be added to shape, but it changed or removed one"):
        composed(Edit("one", Stage.SHAPE, edited("a")), Edit("two", Stage.SHAPE, change))


def test_a_tuple_inside_a_stage_only_grows_too() -> None:
    def exits(block: int) -> Callable[[TrialPlan], TrialPlan]:
        return lambda plan: replace(plan, heads=HeadsPlan(exits=(Exit(block, 8),)))

    with pytest.raises(StrategyError, match=r"'two': entries may only be added to heads\.exits, but it changed"):
        composed(Edit("one", Stage.HEADS, exits(1)), Edit("two", Stage.HEADS, exits(2)))


def test_who_decides_is_drawn_where_several_could_and_recorded_values_give_the_plan_again() -> None:
    strategies = [Edit("a", Stage.SPLIT, split(1)), Edit("b", Stage.SPLIT, split(2))]
    one = compose(strategies, preferred_values({"split.by": "b"}), example_model(4), example_task())
    assert one.plan.split == 2
    assert one.values == {"split.by": "b", "b.n": 2}
    assert str(one.knobs["split.by"]) == "split.by in {a, b}"
    assert compose(strategies, fixed_values(one.values), example_model(4), example_task()) == one


def test_caching_may_also_be_left_out() -> None:
    strategies: list[Strategy[Any]] = [
        Edit("half", Stage.SPLIT, split(2)),
        Edit("mine", Stage.CACHE, cached("mine")),
        SingleStage(),
    ]
    one = compose(strategies, preferred_values({"cache.by": "none"}), example_model(4), example_task())
    assert not one.plan.cached
    assert "mine.n" not in one.values
    assert str(one.knobs["cache.by"]) == "cache.by in {mine, none}"
    assert composed(*strategies, values={"cache.by": "mine"}).cache == CachePlan("mine", 8)


def test_the_plan_comes_in_its_normal_form() -> None:
    assert composed(Edit("mine", Stage.CACHE, cached("mine"))).cache == CachePlan()


@pytest.mark.parametrize(("wanted", "value"), [(3, 3), ((2, 9), 2)])
def test_the_search_space_narrows_a_strategys_knobs(wanted: Wanted, value: int) -> None:
    one = compose([Edit("a", Stage.SHAPE)], preferred_values({}), example_model(4), example_task(), {"a.n": wanted})
    assert one.values == {"a.n": value}


@dataclass(frozen=True)
class Wide(Edit):
    """Writes several parts."""

    writes = frozenset({Stage.SHAPE})
    refines = frozenset({Stage.RECIPE})
    refined: Callable[[TrialPlan], TrialPlan] = lambda plan: plan

    def refine(self, plan: TrialPlan, knobs: int) -> TrialPlan:  # noqa: ARG002 - the change is the test's
        return self.refined(plan)


def faster(plan: TrialPlan) -> TrialPlan:
    return replace(plan, recipe=replace(plan.recipe, learning_rate=10 * plan.recipe.learning_rate))


def deep_and_edited(plan: TrialPlan) -> TrialPlan:
    return replace(plan, split=1, shape=(*plan.shape, TailEdit("deep")))


def test_one_strategy_writes_several_parts_and_refines_what_others_decided() -> None:
    recipe = Edit("recipe", Stage.RECIPE, lambda plan: replace(plan, recipe=RecipePlan(learning_rate=0.01)))
    one = compose(
        [Wide("wide", Stage.SPLIT, deep_and_edited, faster), recipe],
        preferred_values({}),
        example_model(4),
        example_task(),
    )
    assert (one.plan.split, one.plan.shape, one.plan.recipe.learning_rate) == (1, (TailEdit("deep"),), 0.1)
    assert (one.editors, one.changed) == ({"deep": "wide"}, ("wide", "recipe"))


def test_where_another_strategy_decides_the_stage_it_writes_nothing_at_all() -> None:
    strategies = [Edit("freeze", Stage.SPLIT, split(3)), Wide("wide", Stage.SPLIT, deep_and_edited, faster)]
    plan = composed(*strategies)
    assert (plan.split, plan.shape, plan.recipe) == (3, (), RecipePlan())
    assert composed(*strategies, values={"split.by": "wide"}).shape == (TailEdit("deep"),)


def test_refining_is_limited_to_the_parts_named_and_two_of_one_value_are_named() -> None:
    with pytest.raises(StrategyError, match="'wide': refine may write 'recipe' only, but it wrote 'split'"):
        composed(Wide("wide", Stage.SPLIT, refined=split(2)))
    with pytest.raises(StrategyError, match=r"'two': 'one' sets recipe\.learning_rate too: use one of them"):
        composed(Wide("one", Stage.SHAPE, refined=faster), Wide("two", Stage.SHAPE, refined=faster))


def test_of_strategies_that_exclude_each_other_a_knob_draws_one() -> None:
    strategies = [
        Placed("a", Stage.SHAPE, edited("a")),
        Placed("b", Stage.SHAPE, edited("b"), excludes=frozenset({"a"})),
        Placed("c", Stage.SHAPE, edited("c")),
        Placed("d", Stage.SHAPE, edited("d"), excludes=frozenset({"c"})),
    ]
    assert [edit.kind for edit in composed(*strategies).shape] == ["a", "c"]
    values: dict[str, Scalar] = {"shape.by": "b", "shape.by2": "d"}
    one = compose(strategies, preferred_values(values), example_model(4), example_task())
    assert [edit.kind for edit in one.plan.shape] == ["b", "d"]
    assert "a.n" not in one.values


def test_a_strategy_takes_no_part_next_to_one_of_an_earlier_stage_that_it_excludes() -> None:
    strategies = [
        Edit("freeze", Stage.SPLIT, split(1)),
        Placed("lora", Stage.SPLIT, split(2), excludes=frozenset({"grow"})),
        Edit("grow", Stage.SHAPE, edited("grow")),
    ]
    assert [edit.kind for edit in composed(*strategies).shape] == ["grow"]
    assert composed(*strategies, values={"split.by": "lora"}).shape == ()


def test_a_stage_is_first_decided_by_a_strategy_that_writes_no_other() -> None:
    strategies = [Wide("wide", Stage.SPLIT, deep_and_edited), Edit("freeze", Stage.SPLIT, split(3))]
    assert composed(*strategies).split == 3


def test_a_strategy_comes_after_those_it_names() -> None:
    strategies = [
        Placed("a", Stage.SHAPE, edited("a"), after=frozenset({"c"})),
        Placed("b", Stage.SHAPE, edited("b")),
        Placed("c", Stage.SHAPE, edited("c"), after=frozenset({"missing"})),
    ]
    assert [edit.kind for edit in composed(*strategies).shape] == ["b", "c", "a"]
    circle = [Placed(name, Stage.SHAPE, edited(name), after=frozenset({other})) for name, other in ("ab", "ba")]
    assert [edit.kind for edit in composed(*circle).shape] == ["a", "b"]
