"""A run with few validation samples says so, and how uncertain an accuracy on them is."""

import re

import pytest

from tuner.commands.tune.session import few_samples
from tuner.metrics import percent
from tuner.plan.info import TaskInfo
from tuner.task.info import TaskOutline
from tuner.task.spec import InputSpec


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


def test_the_uncertainty_is_that_of_the_interval() -> None:
    (line,) = few_samples(outline(30))
    assert "uncertain by up to 17 points" in line  # 15 of 30: 33 % to 67 %
    assert percent(0.5, 30) == "50.0 % (33–67)"
    assert percent(0.5) == "50.0 %"


@pytest.mark.parametrize(("most_folds", "suggested"), [(0, ""), (1, ""), (3, "--folds 3"), (10, "--folds 5")])
def test_folds_are_a_way_out_where_there_can_be_some(most_folds: int, suggested: str) -> None:
    (line,) = few_samples(outline(30, most_folds=most_folds))
    assert suggested in line
    assert ("--folds" in line) == bool(suggested)


def test_with_folds_the_samples_for_training_count_too() -> None:
    assert not list(few_samples(outline(50), folds=5))
    (line,) = few_samples(outline(30), folds=5)
    assert line.startswith("warning: local.val and the folds of local.train have 80 images, fewer than 100: ")
    assert line.endswith("add images to local.train")
