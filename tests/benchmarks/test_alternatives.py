"""The plain arms of `benchmarks.alternatives` on small features, and what it concludes from its results."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks.alternatives.claims import (
    BEST_LOCAL,
    DEFAULT,
    Difference,
    Measured,
    Result,
    claims_of,
    markdown,
    mean_of,
    ours,
    paired,
    refitted,
    rows_of,
)
from benchmarks.alternatives.heads import HEADS, class_weights
from benchmarks.alternatives.problem import with_rare_class, with_strangers
from benchmarks.alternatives.tasks import written_digits
from benchmarks.alternatives.trained import half_of, one_cycle, softmax
from tuner.arrays import Doubles, Labels


def clusters(seed: int, spread: float = 0.7) -> tuple[Doubles, Labels]:
    """Return 60 samples of three classes in ten dimensions; the centres are the same for every seed."""
    labels = np.repeat(np.arange(3), 20)
    centres = 2 * np.random.default_rng(0).standard_normal((3, 10))
    return centres[labels] + spread * np.random.default_rng(seed).standard_normal((60, 10)), labels


@pytest.mark.parametrize("name", HEADS)
def test_every_head_learns_clusters(name: str) -> None:
    (x, y), (others, truth) = clusters(1), clusters(2)
    scores = HEADS[name](x.astype(np.float32), y, 3, balanced=False, seed=0)(others.astype(np.float32))
    assert scores.shape == (60, 3)
    assert (scores.argmax(1) == truth).mean() > 0.9


def test_balanced_classes_weigh_alike() -> None:
    y = np.array([0] * 8 + [1] * 2)
    weights = class_weights(y, 2, balanced=True)
    assert weights[y == 0].sum() == pytest.approx(weights[y == 1].sum()) == pytest.approx(5)
    assert class_weights(y, 2, balanced=False).tolist() == [1.0] * 10


def test_a_tail_begins_after_half_of_the_flops_and_its_rate_rises_from_a_fifth() -> None:
    assert half_of([1, 1, 1, 1]) == 2
    assert half_of([9, 1, 1]) == 1
    assert half_of([1, 1, 9]) == 2
    assert softmax(np.array([[0.0, 0.0], [1e4, 0.0]])).tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert [one_cycle(progress, 0.3) for progress in (0.0, 0.3, 1.0)] == pytest.approx([0.2, 1.0, 0.0])
    assert one_cycle(0.15, 0.3) == pytest.approx(0.6)


def test_an_interval_is_that_of_the_samples_and_seeds_that_differ_widen_it() -> None:
    flags = np.array([[1.0, 0.0, -1.0, 1.0, 0.0, 0.0, 1.0, 0.0]])
    found = paired([flags])
    assert found.mean == pytest.approx(25.0)
    assert found.half == pytest.approx(100 * stats.t.ppf(0.975, 7) * flags.std(ddof=1) / math.sqrt(8))
    generator = np.random.default_rng(0)
    alike = generator.choice([-1.0, 0.0, 1.0], size=(3, 400), p=[0.05, 0.85, 0.1])
    apart = alike.copy()
    apart[0] = np.minimum(1.0, apart[0] + (generator.random(400) < 0.3))
    assert paired([apart]).half > 3 * paired([alike]).half
    assert paired([np.zeros((2, 5))]) == Difference(0.0, 0.0)


def test_two_domains_count_alike() -> None:
    one, other = np.array([[1.0, 0.0, 1.0, 0.0]]), np.zeros((1, 100))
    assert paired([one, other]).mean == pytest.approx(25.0)
    assert paired([one, other]).half < paired([one]).half
    total = mean_of([Difference(1.0, 3.0), Difference(3.0, 4.0)])
    assert (total.mean, total.half) == (2.0, 2.5)


def result(arm: str, right: int, known: int | None = None, seconds: float = 1.0) -> Result:
    """Return a result with so many of 200 samples right."""
    flags = [tuple([1] * count + [0] * (200 - count)) for count in (right, known or 0)]
    return Result(arm, seconds, flags[0], None if known is None else flags[1])


def measured(name: str, *results: Result, adds_classes: bool = False) -> Measured:
    return Measured(name, adds_classes, {one.arm: [one] for one in results})


MINE = ours(300, DEFAULT)


def test_the_best_simple_arm_is_one_that_is_quick_enough_and_answers_all_classes() -> None:
    arms = (result("ridge", 180), result("slow", 199, seconds=400.0), result(MINE, 200), result("lda", 170, 100))
    assert measured("sign", *arms).best_simple(300) == "ridge"
    assert measured("clothing", *arms, adds_classes=True).best_simple(300) == "lda"
    assert measured("sign", arms[2]).best_simple(300) is None


def test_claims_hold_at_the_unfavourable_end() -> None:
    equal = measured("digits", result(MINE, 190), result("ridge", 190))
    assert [claim.met for claim in claims_of([equal], {"digits": [60, 300]})] == [False, True, False]  # none of 60 s
    ahead = measured("digits", result(MINE, 198), result("ridge", 180))
    assert [claim.met for claim in claims_of([ahead], {"digits": [300]})] == [True, True]
    uncertain = measured("digits", result(MINE, 191), result("ridge", 190))  # 0.5 ± 1.0 points
    assert [claim.met for claim in claims_of([uncertain], {"digits": [300]})] == [False, False]
    missing = measured("digits", result("ridge", 190))
    assert not any(claim.met for claim in claims_of([missing, ahead], {"digits": [300]})[::2])


def test_goals_are_of_the_default_pick_and_where_it_was_refitted_of_that() -> None:
    def goals(local: int, known: int, *more: Result) -> list[bool]:
        arms = (result(MINE, local, known), result(ours(300, BEST_LOCAL), 200, 200), result("ridge", 100, 100), *more)
        claims = claims_of([measured("clothing", *arms, adds_classes=True)], {"clothing": [300]})
        return [claim.met for claim in claims if "goal" in claim.reference]

    assert goals(175, 105) == [True]
    assert goals(174, 105) == goals(175, 104) == [False]
    assert goals(100, 100, result(refitted(300), 175, 105)) == [True]


def test_a_rare_class_counts_beside_the_others() -> None:
    """Of 200 test samples, the last twenty are of the rare class."""
    rare = tuple([False] * 180 + [True] * 20)
    cut = replace(measured("rare-sign", result(MINE, 190)), rare=rare)
    assert cut.divided(MINE, rare) == (50.0, 100.0)
    assert rows_of(cut, 300)[0]["rare class %"] == "50.0"
    seconds = {"sign": [300], "rare-sign": [300]}
    assert [claim.met for claim in claims_of([cut, measured("sign", result(MINE, 200))], seconds)][-1]
    assert not claims_of([cut], seconds)[-1].met
    worse = replace(measured("rare-sign", result(MINE, 185)), rare=rare)
    assert not claims_of([worse, measured("sign", result(MINE, 200))], seconds)[-1].met


def test_strangers_are_told_on_four_of_five_tasks() -> None:
    areas = {"sign": 0.96, "objects": 0.99, "clothing": 0.7, "cifar": 0.95, "digits": 0.97}
    tasks = [measured(f"unknown-{name}", replace(result(MINE, 190), unknown=area)) for name, area in areas.items()]
    seconds = {task.name: [300] for task in tasks}
    assert [claim.met for claim in claims_of(tasks, seconds)] == [True]
    assert [claim.met for claim in claims_of(tasks[1:], seconds)] == [False]
    assert rows_of(tasks[0], 300)[0]["AUROC of strangers"] == "0.960"


def test_problems_that_ask_one_thing_keep_the_rest() -> None:
    digits = written_digits(0)
    rare, unknown = with_rare_class(digits, 0), with_strangers(digits)
    counts, whole = (np.bincount(problem.own.labels, minlength=10) for problem in (rare, digits))
    assert rare.rare == 7
    assert counts[7] == 10
    assert (counts[8:] == whole[8:]).all()
    assert unknown.task.labels == digits.task.labels[:9]
    assert unknown.strangers is not None
    assert set(unknown.strangers.labels) == {9}
    assert set(unknown.own.labels) == set(unknown.test.labels) == {7, 8}


def test_a_table_has_differences_to_each_comparable_arm() -> None:
    task = measured("clothing", result(MINE, 190, 100), result("ridge", 180), result("lda", 180, 90), adds_classes=True)
    rows = rows_of(task, 300)
    assert [row[f"{MINE} − arm"] for row in rows][:2] == ["", ""]
    assert str(rows[2][f"{MINE} − arm"]).startswith("+5.00 ± ")
    assert markdown(rows).splitlines()[0].startswith("| task | arm | local % | global % |")
