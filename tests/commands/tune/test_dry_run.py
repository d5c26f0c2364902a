"""Dry runs: what a run would try, as far as the space allows it."""

from collections.abc import Mapping

import pytest

from tuner.commands.tune.dry_run import depths
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import Numeric, Wanted

NAMES = ("gdm", "freeze", "cache", "none", "recipe", "runtime")


def tried(wanted: Mapping[str, Wanted]) -> list[TrialPlan]:
    strategies = [build_host().strategies[name] for name in NAMES]
    return depths(lambda source: compose(strategies, source, example_model(6), example_task(), wanted), strategies)


def test_every_depth_is_looked_at_with_the_recipe_that_is_tried_first() -> None:
    plans = tried({"freeze.trainable_blocks": Numeric("freeze.trainable_blocks", 1, 6, whole=True)})
    assert [plan.trainable for plan in plans] == [1, 2, 3, 4, 5, 6]
    assert {plan.recipe.epochs for plan in plans} == {8}
    assert [plan.cached for plan in plans] == [True] * 5 + [False]


def test_a_space_that_names_no_depth_has_those_of_the_models_ladder() -> None:
    assert [plan.trainable for plan in tried({})] == sorted({1, *example_model(6).depths}) == [1, 2, 4, 6]


@pytest.mark.parametrize("depth", [(1, 3), 3])
def test_what_the_space_forbids_is_not_looked_at(depth: Wanted) -> None:
    plans = tried({"freeze.trainable_blocks": depth, "recipe.epochs": (2, 3), "cache.by": "none"})
    assert [plan.trainable for plan in plans] == (list(depth) if isinstance(depth, tuple) else [depth])
    assert {plan.recipe.epochs for plan in plans} == {3}  # of 2 and 3 the one nearer to 8, the start value
    assert not any(plan.cached for plan in plans)
