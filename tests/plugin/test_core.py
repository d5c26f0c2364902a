"""The core's own strategies: recipe, none and runtime."""

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plugin.compose import StrategyError, compose
from tuner.plugin.core import Recipe, Runtime, SingleStage
from tuner.plugin.sources import preferred_values
from tuner_testing import StrategyContract


class TestRecipe(StrategyContract):
    strategy = Recipe()


class TestSingleStage(StrategyContract):
    strategy = SingleStage()


class TestRuntime(StrategyContract):
    strategy = Runtime(lambda: ("torch", "ort"))


def test_the_runtime_asks_for_backends_when_it_samples() -> None:
    installed = ["torch"]
    runtime = Runtime(lambda: installed)
    installed.append("ort")
    plan = compose([runtime], preferred_values({"runtime.backend": "ort"}), example_model(2), example_task()).plan
    assert plan.runtime.backend == "ort"


def test_without_a_backend_there_is_no_plan() -> None:
    with pytest.raises(StrategyError, match=r"runtime\.backend must have at least one option"):
        compose([Runtime(tuple)], preferred_values({}), example_model(2), example_task())
