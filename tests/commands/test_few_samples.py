"""A run with few validation samples says so, and how uncertain an accuracy on them is."""

import re

import pytest

from tuner.commands.few_samples import few_samples
from tuner.metrics import percent
from tuner.plan.info import TaskInfo


@pytest.mark.parametrize(
    ("local", "global_", "domains"), [(30, 0, ["local"]), (99, 99, ["local", "global"]), (100, 500, [])]
)
def test_a_domain_with_fewer_than_100_validation_samples_is_named(local: int, global_: int, domains: list[str]) -> None:
    lines = list(few_samples(TaskInfo("t", "f", 50, local, (5,), global_, noun="images")))
    assert [re.findall(r"warning: (\w+)\.val has (\d+) images", line)[0] for line in lines] == [
        (domain, str({"local": local, "global": global_}[domain])) for domain in domains
    ]
    for line in lines:
        assert "add images to" in line


def test_the_uncertainty_is_that_of_the_interval() -> None:
    (line,) = few_samples(TaskInfo("t", "f", 50, 30))
    assert "uncertain by up to 17 points" in line  # 15 of 30: 33 % to 67 %
    assert percent(0.5, 30) == "50.0 % (33–67)"
    assert percent(0.5) == "50.0 %"
