"""The cache strategy."""

from dataclasses import replace

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.parts import CachePlan, Scalar
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import compose
from tuner.plugin.core import SingleStage
from tuner.plugin.sources import corners, preferred_values
from tuner_cache import Cache
from tuner_freeze import Freeze


def composed(values: dict[str, Scalar], augment: tuple[str, ...] = ()) -> TrialPlan:
    task = replace(example_task(), augment=augment)
    return compose([Cache(), SingleStage(), Freeze()], preferred_values(values), example_model(4), task).plan


@pytest.mark.parametrize("bits", [32, 16, 8, 4, 2, 1])
def test_the_prefix_is_kept_at_the_drawn_width(bits: int) -> None:
    plan = composed({"freeze.trainable_blocks": 1, "cache.by": "cache", "cache.bits": bits})
    assert plan.cache == CachePlan("cache", bits)
    article = "an" if bits == 8 else "a"
    assert f"from {article} {bits}-bit cache" in describe(plan)


def test_a_trial_may_go_without_a_cache() -> None:
    plan = composed({"freeze.trainable_blocks": 1, "cache.by": "none"})
    assert not plan.cached


def test_where_nothing_is_frozen_nothing_is_cached_and_widths_are_one_plan() -> None:
    plans = [
        composed({"freeze.trainable_blocks": 4, "cache.by": "cache", "cache.bits": bits})
        for bits in (32, 16, 8, 4, 2, 1)
    ]
    assert {plan.key() for plan in plans} == {composed({"freeze.trainable_blocks": 4, "cache.by": "none"}).key()}


def test_a_first_guess_is_eight_bits() -> None:
    first = next(corners(lambda source: compose([Cache()], source, example_model(4), example_task())))
    assert str(first["cache.bits"]) == "cache.bits in {8, 32, 16, 4, 2, 1}"


def test_each_random_change_can_be_left_out_and_is_named_where_it_is_not() -> None:
    changes = ("crop", "flip", "shift")
    values: dict[str, Scalar] = {"freeze.trainable_blocks": 1, "cache.by": "cache", "cache.augment": 0.5}
    plan = composed({**values, "cache.crop": False}, changes)
    assert plan.cache.left_out == ("crop",)
    assert plan.operations == {"flip", "shift"}
    assert "augmented by 0.5 (flip, shift)" in describe(plan)
    assert from_toml(to_toml(plan)) == plan
    none = composed({**values, **{f"cache.{change}": False for change in changes}}, changes)
    assert none.cache == CachePlan("cache", 8)
