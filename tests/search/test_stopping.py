"""When a front last became better, and a run that ends because it does not."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.plan.plans import PLAN
from tests.search.settings import setting
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.pareto import area
from tuner.search.listener import Listener
from tuner.search.stopping import Improvement, expected_growth
from tuner.search.study import Study


def record(trial: int, local: float, rung: int = 0) -> TrialRecord:
    values = {"local_accuracy": local, "global_accuracy": 0.5}
    return TrialRecord(trial=trial, state="done", plan=PLAN, values=values, rung=rung)


class Fronts(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[float, int, float | None]] = []

    def front(self, area: float, rung: int, gain: float | None) -> None:
        self.heard.append((area, rung, gain))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    monkeypatch.setattr("tuner.search.stopping.CLOCK.now", lambda: now[0])

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
    watched = Improvement(fronts, setting())
    watched.note([])
    assert watched.flat_seconds == 0.0
    low = [record(0, 0.8, rung=2)]
    watched.note(low)
    clock(5.0)
    watched.note([*low, record(1, 0.7, rung=2)])
    assert watched.flat_seconds == 5.0
    watched.note([*low, record(2, 0.4, rung=0)])
    assert watched.flat_seconds == 0.0
    assert [heard[1:] for heard in fronts.heard] == [(2, None), (2, None), (0, None)]
    assert [heard[0] for heard in fronts.heard] == pytest.approx([0.4, 0.4, 0.2])


def test_the_rest_of_the_time_is_expected_to_add_half_as_much_with_every_doubling() -> None:
    grown = [(0.0, 0.0), (10.0, 0.30), (25.0, 0.38), (40.0, 0.40)]
    assert expected_growth(grown, 50.0, 0.0) == 0.0
    assert expected_growth(grown, 50.0, 50.0) == pytest.approx(0.5 * (0.40 - 0.38))
    assert expected_growth(grown, 50.0, 150.0) == pytest.approx((0.5 + 0.25) * (0.40 - 0.38))
    assert expected_growth(grown, 50.0, math.inf) is None
    assert expected_growth([(0.0, 0.0), (10.0, 0.3)], 12.0, 50.0) is None  # nothing yet at half the time


def test_the_expected_growth_is_reported_with_the_front(clock: Callable[[float], None]) -> None:
    fronts, trials = Fronts(), [record(0, 0.5)]
    watched = Improvement(fronts, setting(end=100.0))
    for number, local in enumerate((0.6, 0.7, 0.8), 1):
        clock(10.0)
        watched.note(trials := [*trials, record(number, local)])
    assert fronts.heard[-1][2] == pytest.approx(0.5 * (0.4 - 0.3) * (1 - 0.5 ** math.log2(100 / 30)) / 0.5)


def test_a_run_ends_when_its_front_stays_as_it_is(begin: Callable[..., Study], monkeypatch: Any) -> None:
    monkeypatch.setattr(Improvement, "flat_seconds", property(lambda _self: 61.0))
    study = begin(Budget(trials=50, flat_seconds=60.0))
    study.run()
    assert study.ended == "no better front for 1m 00s"
    assert study.records == []
