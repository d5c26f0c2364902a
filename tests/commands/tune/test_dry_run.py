"""What is said before a run: what it would try, as far as the space allows it, and that there are few samples."""

import re
from collections.abc import Mapping

import pytest

from tuner.commands.tune.dry_run import depths
from tuner.commands.tune.session import few_samples
from tuner.metrics import percent
from tuner.plan.example import example_model, example_task
from tuner.plan.info import TaskInfo
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import Numeric, Wanted
from tuner.task.info import TaskOutline
from tuner.task.spec import InputSpec

NAMES = ("gdm", "freeze", "cache", "none", "recipe", "runtime")


def tried(wanted: Mapping[str, Wanted]) -> list[TrialPlan]:
    strategies = [build_host().strategies[name] for name in NAMES]
    return depths(lambda source: compose(strategies, source, example_model(6), example_task(), wanted), strategies)


def test_every_depth_is_looked_at_with_the_recipe_that_is_tried_first() -> None:
    plans = tried({"freeze.trainable_blocks": Numeric("freeze.trainable_blocks", 1, 6, whole=True)})
    assert [plan.trainable for plan in plans] == [1, 2, 3, 4, 5, 6]
    assert {plan.recipe.epochs for plan in plans} == {16}  # of 50 samples, the least that says something
    assert [plan.cached for plan in plans] == [True] * 5 + [False]
    # a space that names no depth has those of the model's ladder
    assert [plan.trainable for plan in tried({})] == sorted({1, *example_model(6).depths}) == [1, 2, 4, 6]


@pytest.mark.parametrize("depth", [(1, 3), 3])
def test_what_the_space_forbids_is_not_looked_at(depth: Wanted) -> None:
    plans = tried({"freeze.trainable_blocks": depth, "recipe.epochs": (2, 3), "cache.by": "none"})
    assert [plan.trainable for plan in plans] == (list(depth) if isinstance(depth, tuple) else [depth])
    assert {plan.recipe.epochs for plan in plans} == {3}  # of 2 and 3 the one nearer to 8, the start value
    assert not any(plan.cached for plan in plans)


def outline(local: int, global_: int = 0, most_folds: int = 10) -> TaskOutline:
    info = TaskInfo("t", "f", 50, local, (5,), global_, noun="images")
    spec = InputSpec("images", size=8)
    return TaskOutline(info, ("a", "b"), spec, (3, 8, 8), "single-label", most_folds=most_folds)


@pytest.mark.parametrize(
    ("local", "global_", "domains"), [(30, 0, ["local"]), (99, 99, ["local", "global"]), (100, 500, [])]
)
def test_a_domain_with_fewer_than_100_validation_samples_is_named(local: int, global_: int, domains: list[str]) -> None:
    lines = list(few_samples(outline(local, global_)))
    assert [re.findall(r"warning: (\w+)\.val has (\d+) images", line)[0] for line in lines] == [
        (domain, str({"local": local, "global": global_}[domain])) for domain in domains
    ]
    for line in lines:
        assert "add images to" in line


def test_the_uncertainty_is_that_of_the_interval_and_folds_make_it_less() -> None:
    (line,) = few_samples(outline(30))
    assert "uncertain by up to 17 points" in line  # 15 of 30: 33 % to 67 %
    assert percent(0.5, 30) == "50.0 % (33–67)"
    assert percent(0.5) == "50.0 %"
    assert not list(few_samples(outline(50), folds=5))
    (line,) = few_samples(outline(30), folds=5)
    assert line.startswith("warning: local.val and the folds of local.train have 80 images, fewer than 100: ")
    assert line.endswith("add images to local.train")


@pytest.mark.parametrize(("most_folds", "suggested"), [(0, ""), (1, ""), (3, "--folds 3"), (10, "--folds 5")])
def test_folds_are_a_way_out_where_there_can_be_some(most_folds: int, suggested: str) -> None:
    (line,) = few_samples(outline(30, most_folds=most_folds))
    assert suggested in line
    assert ("--folds" in line) == bool(suggested)
