"""Which members of a front are shown."""

import pytest

from tuner.metrics import wilson
from tuner.results.scores.objectives import OBJECTIVES
from tuner.results.scores.pareto import MOST, shortlist, useful

SAMPLES = {"local": 400, "global": 400}


def member(local: float, global_: float = 0.5, seconds: float = 1.0, peak: float = 1e8) -> dict[str, float]:
    return {"local_accuracy": local, "global_accuracy": global_, "train_seconds": seconds, "peak_bytes": peak}


def test_who_is_below_what_comes_free_is_not_shown() -> None:
    members = {0: member(0.05, seconds=0.1), 1: member(0.3), 2: member(0.8)}
    assert list(useful(members, {"local_accuracy": 0.1}, 0.2)) == [1, 2]
    assert list(useful(members, {"local_accuracy": 0.5}, 0.2)) == [2]
    assert list(useful(members, {"local_accuracy": 0.9}, 0.0)) == [0, 1, 2]


def test_what_no_difference_tells_apart_is_shown_once() -> None:
    # The standard error of 80 % of 400 is 2 points: 81 % is near 80 %, 85 % is not, nor is half the time.
    members = {0: member(0.80), 1: member(0.81, seconds=1.05), 2: member(0.85), 3: member(0.80, seconds=0.5)}
    assert shortlist(members, OBJECTIVES, SAMPLES, first=None) == (1, 2, 3)
    assert shortlist(members, OBJECTIVES, SAMPLES, first=0) == (0, 2, 3)
    assert shortlist(members, OBJECTIVES, {"local": 1_000_000, "global": 400}, first=None) == (0, 1, 2, 3)


def test_a_large_front_is_looked_at_more_coarsely() -> None:
    members = {number: member(0.5 + number / 250, 0.9 - number / 250, 1.0 + number) for number in range(100)}
    shown = shortlist(members, OBJECTIVES, SAMPLES, first=50)
    assert 3 <= len(shown) <= MOST
    assert 50 in shown


def test_an_empty_front_has_no_shortlist() -> None:
    assert shortlist({}, OBJECTIVES, SAMPLES, first=None) == ()


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    [
        (81 / 263, 263, 0.2553, 0.3662),
        (15 / 148, 148, 0.0624, 0.1605),
        (0.0, 20, 0.0, 0.1611),
        (1 / 29, 29, 0.0061, 0.1718),
    ],
)
def test_intervals_are_wilsons(share: float, count: int, low: float, high: float) -> None:
    assert wilson(share, count) == pytest.approx((low, high), abs=1e-4)
