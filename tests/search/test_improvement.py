"""When a front last became better, and a run that ends because it does not."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.plan.plans import PLAN
from tuner.results.config import Budget
from tuner.results.pareto import area
from tuner.results.records import TrialRecord
from tuner.search.improvement import Improvement
from tuner.search.listener import Listener
from tuner.search.study import Study


def record(trial: int, local: float, rung: int = 0) -> TrialRecord:
    values = {"local_accuracy": local, "global_accuracy": 0.5}
    return TrialRecord(trial=trial, state="done", plan=PLAN, values=values, rung=rung)


class Fronts(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[float, int]] = []

    def front(self, area: float, rung: int) -> None:
        self.heard.append((area, rung))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    monkeypatch.setattr("tuner.search.improvement.time.monotonic", lambda: now[0])

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    return pass_by


def test_the_area_is_the_union_of_rectangles() -> None:
    assert area([]) == 0.0
    assert area([{"local_accuracy": 0.5, "global_accuracy": 0.4}]) == pytest.approx(0.2)
    two = [{"local_accuracy": 0.5, "global_accuracy": 0.4}, {"local_accuracy": 0.2, "global_accuracy": 0.9}]
    assert area(two) == pytest.approx(0.5 * 0.4 + 0.2 * 0.5)
    assert area([*two, {"local_accuracy": 0.1, "global_accuracy": 0.3}]) == area(two)
    assert area([{"local_accuracy": 0.7}]) == pytest.approx(0.7)


def test_a_better_front_is_reported_and_a_higher_rung_is_better_in_any_case(clock: Callable[[float], None]) -> None:
    fronts = Fronts()
    watched = Improvement(fronts)
    watched.note([])
    assert watched.flat_seconds == 0.0
    low = [record(0, 0.8, rung=2)]
    watched.note(low)
    clock(5.0)
    watched.note([*low, record(1, 0.7, rung=2)])
    assert watched.flat_seconds == 5.0
    watched.note([*low, record(2, 0.4, rung=0)])
    assert watched.flat_seconds == 0.0
    assert [rung for _, rung in fronts.heard] == [2, 0]
    assert [size for size, _ in fronts.heard] == pytest.approx([0.4, 0.2])


def test_a_run_ends_when_its_front_stays_as_it_is(begin: Callable[..., Study], monkeypatch: Any) -> None:
    monkeypatch.setattr(Improvement, "flat_seconds", property(lambda _self: 61.0))
    study = begin(Budget(trials=50, flat_seconds=60.0))
    study.run()
    assert study.ended == "no better front for 1m 00s"
    assert study.records == []
