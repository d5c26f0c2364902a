"""Candidates are compared by what a solved head answers to each sample left out, on growing shares of the samples."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from tuner.errors import BudgetError, TaskError, TunerError
from tuner.machine.awake import CLOCK
from tuner.ridge.solve import solve, spread
from tuner.ridge.sums import Sums
from tuner.targets import SINGLE_LABEL, targets_of
from tuner_choose.halving import Halving, Look, Seen, table
from tuner_choose.scores import correct

CLASSES, SAMPLES, WIDTH = 4, 160, 12
LABELS = np.arange(SAMPLES) % CLASSES
NOISE = np.random.default_rng(0).standard_normal((SAMPLES, WIDTH))


def looking(noise: Mapping[str, float], latency: Mapping[str, float], seen: list[tuple[str, int]]) -> Look:
    """Return candidates whose features are the classes' places, with noise; one of infinite noise cannot be opened."""

    def look(name: str, begin: int, upto: int, within: float) -> Seen:
        seen.append((name, upto - begin))
        if np.isinf(noise[name]):
            raise TaskError(f"no file {name}: give another")
        features = np.eye(CLASSES, WIDTH)[LABELS] + noise[name] * NOISE
        return Seen(
            features[begin:upto].astype(np.float32),
            LABELS[begin:upto],
            0.0,
            0.01 * latency[name],
            latency[name],
            100,
            10,
            1,
        )

    return look


def halving(
    noise: Mapping[str, float],
    latency: Mapping[str, float],
    seen: list[tuple[str, int]],
    end: float = math.inf,
    until: float = math.inf,
) -> Halving:
    look = looking(noise, latency, seen)
    return Halving(
        list(noise),
        look,
        total=SAMPLES,
        classes=CLASSES,
        outputs=CLASSES,
        targets=SINGLE_LABEL,
        end=end,
        until=until,
    )


def test_the_better_one_wins_though_it_takes_longer() -> None:
    noise, latency = (
        {"near": 0.35, "worse": 9.0, "good": 0.2, "poor": 2.0},
        {"near": 1, "worse": 1, "good": 2, "poor": 1},
    )
    seen = list[tuple[str, int]]()
    choice = halving(noise, latency, seen)
    picked = choice.choose()
    assert picked.name == "good"
    assert not picked.reason
    assert sum(count for name, count in seen if name == "worse") == SAMPLES // 4
    rows = {row["candidate"]: row for row in table(choice, picked)}
    assert "points" in str(rows["worse"]["reason"])
    assert rows["good"]["low"] < rows["good"]["accuracy"] <= rows["good"]["high"]  # type: ignore[operator]


def test_one_that_was_left_early_is_compared_by_fits_of_as_many_samples() -> None:
    names = ("picked", "level", "worse", "bad")
    choice = halving(dict(zip(names, (0.5, 0.5, 9.0, 9.0), strict=True)), dict.fromkeys(names, 1.0), [])
    picked = choice.choose()
    few, many = picked.earlier[SAMPLES // 4], picked.right[: SAMPLES // 4]
    assert few.mean() < many.mean()  # the fit that has seen all samples answers these better
    worse = next(row for row in table(choice, picked) if row["candidate"] == "worse")
    assert worse["gain"] == pytest.approx(choice.rows[2].score - few.mean())
    assert str(worse["reason"]).startswith(f"{100 * float(str(worse['gain'])):+.1f} points")


def test_of_two_that_cannot_be_told_apart_the_cheaper_is_searched_and_the_table_says_so() -> None:
    seen = list[tuple[str, int]]()
    choice = halving({"dear": 0.40, "cheap": 0.40}, {"dear": 2.0, "cheap": 1.0}, seen)
    picked = choice.choose()
    assert seen == [(name, count) for count in (40, 40, 80) for name in ("dear", "cheap")]  # each sample once
    dear = next(row for row in choice.rows if row is not picked)
    assert picked.name == "cheap"
    assert "no significant gain, at 2.0 × the time of a prediction" in dear.reason
    assert choice.difference(dear, picked).gain >= 0
    assert choice.second(picked, lambda _: False) is None
    assert choice.second(picked, lambda _: True) is dear
    rows = table(choice, picked, dear)
    assert [(row["candidate"], row["searched"], row["reason"]) for row in rows] == [
        (n, True, "") for n in ("dear", "cheap")
    ]
    assert [row["on_front"] for row in rows] == [False, True]  # it is as good, and takes longer


@pytest.mark.parametrize(("noise", "latency"), [(9.0, 3.0), (0.40, 1.4)])
def test_neither_a_worse_one_nor_one_at_like_costs_is_searched_too(noise: float, latency: float) -> None:
    choice = halving({"picked": 0.40, "other": noise}, {"picked": 1.0, "other": latency}, [])
    picked = choice.choose()
    assert picked.name == "picked"
    assert choice.second(picked, lambda _: True) is None


def test_the_first_stays_to_be_compared_while_it_is_not_surely_worse() -> None:
    choice = halving(
        dict.fromkeys(("first", "one", "two", "three"), 0.4), {"first": 9, "one": 1, "two": 1, "three": 1}, []
    )
    for right, row in zip((24, 28, 28, 28), choice.rows, strict=True):
        row.right = np.array([1.0] * right + [0.0] * (32 - right))
        row.seen.append(Seen(NOISE[:32].astype(np.float32), LABELS[:32], 0.0, 0.01, 9.0 - 8 * (right > 24), 100, 10))
    choice._halve()
    assert [row.name for row in choice.left] == ["first", "one", "two"]


def test_few_samples_that_say_little_do_not_displace_the_first() -> None:
    noise, latency = {"first": 0.52, "other": 0.50}, {"first": 2.0, "other": 1.0}
    choice = halving(noise, latency, [], CLOCK.now())
    first, other = choice.rows
    first.right, other.right = np.array([1.0] * 25 + [0.0] * 7), np.array([0.0] * 2 + [1.0] * 26 + [0.0] * 4)
    look = Seen(NOISE[:32].astype(np.float32), LABELS[:32], 0.0, 0.01, 1.0, 100, 10)
    first.seen.append(look)
    other.seen.append(look)
    assert other.score > first.score
    assert choice._pick() is first


def test_a_better_one_that_has_no_time_to_see_all_samples_is_left_and_what_it_would_bring_is_said() -> None:
    a_search = CLOCK.now() + 3.5  # seconds: one pass takes the cheap one 2.1, the dear one 5.3
    choice = halving({"cheap": 0.60, "dear": 0.40}, {"cheap": 1.0, "dear": 2.5}, [], until=a_search)
    picked = choice.choose()
    assert picked.name == "cheap"
    assert "of --time are left" in choice.rows[1].reason
    dear = table(choice, picked)[1]
    assert dear["on_front"]
    assert dear["relative_costs"] == 2.5
    assert dear["gain"] > 0  # type: ignore[operator]
    assert choice.second(picked, lambda _: True) is None  # there is no time to train it


def test_where_the_time_is_over_before_any_is_seen_the_first_usable_one_is_taken() -> None:
    def look(name: str, *_: object) -> Seen:
        raise TaskError("no such file") if name == "broken" else BudgetError("took longer than --time allows")

    names = ["broken", "first", "second"]
    choice = Halving(names, look, total=SAMPLES, classes=CLASSES, outputs=CLASSES, targets=SINGLE_LABEL)
    picked = choice.choose()
    assert picked.name == "first"
    rows = table(choice, picked)
    assert not any(row["on_front"] for row in rows)
    assert [row["chosen"] for row in rows] == [False, True, False]
    assert "give more with --time" in str(rows[2]["reason"])


def test_a_broken_one_is_reported_and_left_out_and_none_left_is_an_error() -> None:
    choice = halving({"broken": np.inf, "good": 0.3, "bad": 5.0}, {"broken": 1, "good": 1, "bad": 1}, [])
    assert choice.choose().name == "good"
    assert choice.rows[0].reason == "no file broken: give another"
    with pytest.raises(TunerError, match=r"none of the 2 candidates .* no file one: give another"):
        halving({"one": np.inf, "two": np.inf}, {"one": 1, "two": 1}, []).choose()


def test_when_the_time_is_over_what_was_seen_decides() -> None:
    seen = list[tuple[str, int]]()
    noise, latency = {"first": 0.3, "second": 0.2}, {"first": 1.0, "second": 1.0}
    choice = halving(noise, latency, seen, CLOCK.now() - 1)
    assert choice.choose().name == "first"
    assert seen == [("first", SAMPLES // 4)]
    assert "give more with --time" in choice.rows[1].reason


def test_leave_one_out_is_exact_also_with_more_features_than_samples() -> None:
    features = np.random.default_rng(1).standard_normal((24, 40)).astype(np.float32) + np.eye(24, 40)
    labels = np.arange(24) % 3
    found = correct(features, labels, 3, SINGLE_LABEL)
    truth, best = np.eye(3)[labels], []
    for power in np.arange(0.0, 4.1, 0.5):
        answers = []
        full = Sums.empty(40, 3).added(features.astype(float), truth)
        ridge = 10.0**power * spread(full)
        for place in range(24):
            rest = np.arange(24) != place
            sums = Sums.empty(40, 3).added(features[rest].astype(float), truth[rest])
            answers.append(solve(sums, ridge).head.scores(features[place : place + 1])[0].argmax())
        best.append(np.array(answers) == labels)
    assert any((found == one).all() for one in best)


def test_regressions_are_compared_too() -> None:
    targets = targets_of("regression")
    truth = NOISE[:, :2].astype(np.float32)
    right = correct(NOISE.astype(np.float32), truth, 2, targets)
    assert right.mean() > correct(NOISE[::-1].astype(np.float32), truth, 2, targets).mean()
