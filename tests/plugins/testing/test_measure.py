"""The contract of measures: a good one obeys it, and each of its checks fails for a bad one."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.backends.measuring import MeasuredTrial
from tuner.files import import_file
from tuner_testing import MeasureContract
from tuner_testing.rules import rules_of

FAILS = pytest.fail.Exception
OPEN: list[float] = []
SOURCE = """
from tuner.plugin import Objective, hookimpl

def begin():
    return lambda _trial: 1.0

@hookimpl
def tuner_objectives():
    return [Objective("train_joules", "minimise", "J")]

@hookimpl
def tuner_measures(backend):
    return {"train_joules": begin}
"""


def seconds() -> Callable[[MeasuredTrial], float]:
    begun = time.monotonic()
    return lambda _trial: time.monotonic() - begun


def nothing() -> Callable[[MeasuredTrial], Any]:
    return lambda _trial: None


def a_number() -> Any:
    return 1.0


def only_once() -> Callable[[MeasuredTrial], float]:
    if OPEN:
        raise RuntimeError("the counter is open")
    OPEN.append(1.0)
    return lambda _trial: 1.0


class TestSeconds(MeasureContract):
    measure = seconds


def contract(measure: Callable[..., Any]) -> MeasureContract:
    return type("Contract", (MeasureContract,), {"measure": staticmethod(measure)})()  # type: ignore[no-any-return]  # a class made by type


def test_a_value_that_is_no_number_is_found() -> None:
    with pytest.raises(FAILS, match="must return a finite number, got None: offer it only where it can be taken"):
        contract(nothing).test_its_value_is_a_finite_number()


def test_a_measure_that_does_not_begin_is_found() -> None:
    with pytest.raises(FAILS, match=r"must return a function that ends it, but it returned 1\.0"):
        contract(a_number).test_its_value_is_a_finite_number()


def test_one_that_can_be_taken_once_is_found() -> None:
    with pytest.raises(RuntimeError, match="the counter is open"):
        contract(only_once).test_it_can_be_taken_again()


def broken(path: Path, source: str) -> dict[str, str]:
    path.write_text(source)
    rules = rules_of(import_file(path, "test"))
    assert [rule.text for rule in rules if rule.subject.startswith("measure ")] == [
        "its value is a finite number",
        "it can be taken again",
    ]
    return {rule.text: message for rule in rules if (message := rule.broken())}


def test_a_plugin_is_held_to_it(tmp_path: Path) -> None:
    assert broken(tmp_path / "tuner_one.py", SOURCE) == {}
    misspelt = SOURCE.replace('return {"train_joules"', 'return {"train_jouls"')
    assert broken(tmp_path / "tuner_two.py", misspelt) == {
        "its measures are of objectives": "measure 'train_jouls' must be of an objective (did you mean "
        "'train_joules'?): add it to tuner_objectives"
    }
