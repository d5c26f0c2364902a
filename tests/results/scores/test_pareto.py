"""The Pareto front, its knee, and which of its members are shown."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.metrics import wilson
from tuner.results.scores.objectives import OBJECTIVES, Objective
from tuner.results.scores.pareto import MOST, front, knee, shortlist, useful

LOCAL, GLOBAL, SECONDS, BYTES = OBJECTIVES
Values = dict[int, dict[str, float]]
UNTOUCHED = {"local_accuracy": 0.0, "global_accuracy": 0.9}
SAMPLES = {"local": 400, "global": 400}


def member(local: float, global_: float = 0.5, seconds: float = 1.0, peak: float = 1e8) -> dict[str, float]:
    return {"local_accuracy": local, "global_accuracy": global_, "train_seconds": seconds, "peak_bytes": peak}


def test_what_nothing_beats_is_on_the_front() -> None:
    values = {0: member(0.5, 0.9), 1: member(0.6, 0.8), 2: member(0.5, 0.8), 3: member(0.5, 0.9, seconds=0.5)}
    assert front(values, OBJECTIVES) == [1, 3]
    assert front({}, OBJECTIVES) == []
    assert knee({}, OBJECTIVES, UNTOUCHED) is None
    assert shortlist({}, OBJECTIVES, SAMPLES, first=None) == ()


def test_only_the_objectives_count() -> None:
    values = {0: member(0.5, 0.1), 1: member(0.5, 0.9), 2: member(0.6, 0.0)}
    assert front(values, [LOCAL]) == [2]
    assert front(values, [LOCAL, GLOBAL]) == [1, 2]


levels = st.integers(0, 3).map(float)
trials = st.dictionaries(st.integers(0, 30), st.builds(member, levels, levels, levels, levels), max_size=12)


def beats(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether `one` is nowhere worse and somewhere better, spelt out a value at a time."""
    differences = [
        one["local_accuracy"] - other["local_accuracy"],
        one["global_accuracy"] - other["global_accuracy"],
        other["train_seconds"] - one["train_seconds"],
        other["peak_bytes"] - one["peak_bytes"],
    ]
    return min(differences) >= 0 and max(differences) > 0


@given(trials)
def test_the_front_is_what_trying_every_pair_gives(values: Values) -> None:
    unbeaten = [key for key in sorted(values) if not any(beats(other, values[key]) for other in values.values())]
    first = {tuple(values[key].items()): key for key in reversed(unbeaten)}
    assert front(values, OBJECTIVES) == sorted(first.values())


@pytest.mark.parametrize(
    ("members", "objectives", "before", "chosen"),
    [
        pytest.param(
            {0: member(0.80, 0.9, 1000), 1: member(0.73, 0.9, 1), 2: member(0.75, 0.9, 10)},  # 0.2 + 0.9 · 0.6 = 0.74
            [SECONDS],
            0.2,
            2,
            id="nine tenths of the best local gain",
        ),
        pytest.param(
            {0: member(0.8, 0.84, 1), 1: member(0.8, 0.85, 100), 2: member(0.8, 0.86, 1000)},
            [LOCAL, SECONDS],
            0.0,
            1,
            id="at most five points of global accuracy",
        ),
        pytest.param(
            {0: member(0.9, 0.1, 1), 1: member(0.8, 0.2, 1000)}, [LOCAL, SECONDS], 0.0, 0, id="none is good enough"
        ),
        pytest.param(
            {4: member(1.0, 0.9, 100), 3: member(0.95, 0.9, 1)}, [LOCAL, SECONDS], 0.0, 3, id="ties: the lower number"
        ),
        pytest.param({0: member(1.0, 0.9, 1), 1: member(0.9, 0.9, 1)}, [LOCAL, SECONDS], 0.0, 0, id="one value"),
        pytest.param({0: member(1.0, 0.9, 5), 1: member(1.0, 0.9, 0)}, [LOCAL, SECONDS], 0.0, 1, id="cost of 0"),
    ],
)
def test_the_knee_of_these_is(members: Values, objectives: list[Objective], before: float, chosen: int) -> None:
    assert knee(members, objectives, {"local_accuracy": before, "global_accuracy": 0.9}) == chosen


def test_the_knee_is_nearest_to_the_ideal_point_with_costs_in_log() -> None:
    members = {0: member(1.00, 0.9, 1000), 1: member(0.97, 0.9, 32), 2: member(0.94, 0.9, 1)}
    # scaled: (0, 1), (0.5, 0.5017), (1, 0); without the logarithm 1 would be at (0.5, 0.03)
    assert math.hypot(0.5, math.log(32) / math.log(1000)) < 1
    assert knee(members, [LOCAL, SECONDS], UNTOUCHED) == 1
    members[1] = member(0.97, 0.9, 900)
    assert knee(members, [LOCAL, SECONDS], UNTOUCHED) == 0


def test_without_global_data_only_the_local_gain_counts() -> None:
    members: Values = {0: {"local_accuracy": 0.9, "train_seconds": 9}, 1: {"local_accuracy": 0.85, "train_seconds": 1}}
    assert knee(members, [LOCAL, SECONDS], {"local_accuracy": 0.0}) == 0
    members[1]["train_seconds"] = 1e-3
    assert knee(members, [SECONDS], {"local_accuracy": 0.0}) == 1


@given(
    st.dictionaries(
        st.integers(0, 9),
        st.builds(member, st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 100)),
        min_size=1,
        max_size=6,
    )
)
def test_the_knee_is_what_the_definition_says(members: Values) -> None:
    best = max(value["local_accuracy"] for value in members.values())
    able = [
        key
        for key, value in sorted(members.items())
        if value["local_accuracy"] >= 0.9 * best - 1e-12 and value["global_accuracy"] >= 0.9 - 0.05 - 1e-12
    ] or sorted(members)

    def scaled(key: int, name: str) -> float:
        column = [members[one][name] for one in able]
        ideal, worst = max(column), min(column)
        return (ideal - members[key][name]) / (ideal - worst) if ideal > worst else 0.0

    def cost(key: int) -> float:
        column = [math.log(members[one]["train_seconds"]) for one in able]
        low, high = min(column), max(column)
        return (math.log(members[key]["train_seconds"]) - low) / (high - low) if high > low else 0.0

    distances = {
        key: math.hypot(scaled(key, "local_accuracy"), scaled(key, "global_accuracy"), cost(key)) for key in able
    }
    found = knee(members, [LOCAL, GLOBAL, SECONDS], UNTOUCHED)
    assert found in distances
    assert distances[found] == pytest.approx(min(distances.values()))


@pytest.mark.parametrize(
    ("objective", "value", "said"),
    [
        (LOCAL, 0.853, "85.3 %"),
        (SECONDS, 12.34, "12.3 s"),
        (BYTES, 38e6, "38 MB"),
        (Objective("energy", "minimise", "J"), 2.0, "2 J"),
        (Objective("mean_flops", "minimise", "FLOP"), 2.034e8, "203 MFLOP"),
        (Objective("mean_flops", "minimise", "FLOP"), 8.2e9, "8.2 GFLOP"),
    ],
)
def test_objectives_say_values_for_people(objective: Objective, value: float, said: str) -> None:
    assert objective.text(value) == said


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
