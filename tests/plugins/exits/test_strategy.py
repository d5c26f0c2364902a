"""The exits strategy: where exits sit, how wide their heads are, and what the plan says."""

from dataclasses import replace

import pytest

from tuner.backends.onnxruntime import OrtBackend
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan, head_macs, head_parameters
from tuner.plan.info import ModelInfo
from tuner.plan.parts import Scalar
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.sources import preferred_values
from tuner_closed_form import ClosedForm
from tuner_exits import Exits, Knobs, narrowed, placed
from tuner_freeze import Freeze


def composed(values: dict[str, Scalar]) -> TrialPlan:
    depth = {name: value for name, value in values.items() if name == "freeze.trainable_blocks"}
    return compose([Exits(), Freeze()], preferred_values(values), example_model(20), example_task(), depth).plan


def scaled(model: ModelInfo, flops: int) -> ModelInfo:
    return replace(model, blocks=tuple(replace(block, flops=flops) for block in model.blocks))


@pytest.mark.parametrize(("count", "blocks"), [(1, [10]), (3, [5, 10, 15]), (4, [4, 8, 12, 16])])
def test_exits_sit_at_equal_shares_of_the_flops(count: int, blocks: list[int]) -> None:
    assert [one.block for one in placed(scaled(example_model(20), 10**9), count, 128)] == blocks


def test_between_two_blocks_the_later_is_taken_and_exits_may_begin_later() -> None:
    assert [one.block for one in placed(scaled(example_model(5), 10**9), 1, 128)] == [3]
    assert [one.block for one in placed(scaled(example_model(20), 10**9), 3, 128, 0.5)] == [13, 15, 18]
    assert len(placed(scaled(example_model(3), 10**9), 6, 128)) == 2  # those that fall on one block are one


def test_a_linear_head_has_no_channels_and_is_left_out_where_it_would_read_too_much() -> None:
    model = scaled(example_model(20), 10**9)
    assert placed(model, 1, 0) == (Exit(10, 0),)
    wide = replace(model, blocks=tuple(replace(block, in_shape=(2049,)) for block in model.blocks))
    assert placed(wide, 1, 0) == ()
    assert head_parameters((512, 28, 28), 0, 10) == 513 * 10
    assert head_macs((512, 28, 28), 0, 10) == 5120


def test_a_head_is_narrowed_until_it_costs_a_twentieth() -> None:
    model = scaled(example_model(20), 250_000)
    channels = narrowed(model, 10, 128)
    assert channels is not None
    assert channels < 128
    assert 2 * head_macs((8, 4, 4), channels, 10) <= 0.05 * 5_000_000 < 2 * head_macs((8, 4, 4), channels + 8, 10)
    assert narrowed(scaled(model, 10), 10, 128) is None
    assert placed(scaled(model, 10), 3, 128) == ()


def test_exits_alone_freeze_everything_and_say_so() -> None:
    plan = composed({"exits.mode": "exits-only", "exits.count": 2, "exits.loss": "supervised+distilled"})
    assert plan.split == 20
    assert plan.heads.supervised == 1.0
    assert plan.heads.distilled == 0.55
    assert "train side heads only" in describe(plan)
    assert plan.heads.ridge > 0
    assert plan.recipe.epochs == 1
    assert describe(plan).endswith("2 exits (exits-only; solved for by labels and distillation)")
    trained = composed({"exits.mode": "exits-only", "exits.head": "trained", "exits.loss": "supervised"})
    assert trained.heads.ridge == 0
    assert describe(trained).endswith("(exits-only; taught by labels)")


def test_with_a_tail_exits_above_the_split_are_left_out() -> None:
    plan = composed({"exits.mode": "with-tail", "exits.count": 4, "freeze.trainable_blocks": 10})
    assert [one.block for one in plan.heads.exits] == [4, 8]
    assert plan.cuts == (4, 8, 10)


def test_exits_learn_from_a_head_that_is_solved_for_and_keep_their_own_steps() -> None:
    values: dict[str, Scalar] = {"exits.mode": "with-tail", "exits.count": 2, "recipe.epochs": 5}
    for head, epochs in (("closed-form", 1), ("trained", 5)):
        strategies = [*build_host(installed=False).strategies.values(), Exits(), ClosedForm()]
        source = preferred_values({**values, "exits.head": head})
        plan = compose(strategies, source, example_model(20), example_task()).plan
        assert plan.traits.solves
        assert plan.split == 19
        assert len(plan.heads.exits) == 2
        assert (plan.recipe.epochs, plan.recipe.solve_again) == (epochs, False)
        ort = OrtBackend().supports(plan) or ""
        assert ("solve for them" in ort) == (head == "trained")


def test_without_exits_the_plan_has_no_heads() -> None:
    assert composed({"exits.mode": "none"}).heads == HeadsPlan()
    assert Exits().apply(TrialPlan(example_model(1), example_task()), Knobs("none")).heads == HeadsPlan()


def test_exits_of_another_strategy_stay() -> None:
    plan = replace(TrialPlan(example_model(20), example_task()), heads=HeadsPlan(exits=(Exit(1, 4),)))
    assert Exits().apply(plan, Knobs("exits-only", 1)).heads.exits[0] == Exit(1, 4)


def test_exits_may_begin_with_what_they_learn_from_the_global_data() -> None:
    values: dict[str, Scalar] = {"exits.mode": "exits-only", "exits.head": "closed-form", "exits.init": "global"}
    plan = composed({**values, "exits.global_weight": 0.25})
    assert plan.heads.global_weight == 0.25
    assert "begun on the global data" in describe(plan)
    assert from_toml(to_toml(plan)) == plan
    assert composed({**values, "exits.init": "none"}).heads.global_weight == 0.0
    assert composed({**values, "exits.head": "trained"}).heads.global_weight == 1.0
