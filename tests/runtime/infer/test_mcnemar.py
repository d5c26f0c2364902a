"""McNemar's exact test against SciPy's binomial test, and the bound of a drop against what it promises."""

import numpy as np
import pytest
from scipy.stats import binomtest

from tuner.runtime.infer.mcnemar import harm, least_drop, most_drop

COUNTS = [(lost, won) for lost in range(14) for won in range(14)] + [(700, 650), (3000, 2950), (0, 5000)]


@pytest.mark.slow
def test_p_values_are_scipys() -> None:
    for lost, won in COUNTS[1:]:
        expected = binomtest(lost, lost + won, 0.5, alternative="greater").pvalue
        assert harm(lost, won) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_models_that_never_disagree_do_not_differ_and_counts_that_cannot_be_are_refused() -> None:
    assert harm(0, 0) == 1
    with pytest.raises(ValueError, match="at least 0"):
        harm(-1, 3)
    with pytest.raises(ValueError, match="are not among 5 samples"):
        least_drop(4, 3, 5, 0.95)


@pytest.mark.parametrize(("lost", "won", "count"), [(45, 17, 500), (31, 31, 500), (3, 0, 30), (0, 0, 500), (0, 30, 30)])
def test_the_bound_of_a_drop_is_below_it_and_rises_with_the_confidence_that_is_given_up(
    lost: int, won: int, count: int
) -> None:
    bounds = [least_drop(lost, won, count, confidence) for confidence in (0.99, 0.95, 0.8, 0.51)]
    assert bounds == sorted(bounds)
    assert -1 <= bounds[0] <= bounds[-1] <= (lost - won) / count
    assert least_drop(won, lost, count, 0.95) <= -bounds[1] + 1e-9


@pytest.mark.parametrize("drop", [0.0, 0.01, 0.05])
def test_the_bound_is_above_the_true_drop_in_one_case_of_twenty(drop: float) -> None:
    draws = np.random.default_rng(0).multinomial(500, [0.05 + drop, 0.05, 0.9 - drop], size=2000)
    above = np.mean([least_drop(int(lost), int(won), 500, 0.95) > drop for lost, won, _ in draws])
    assert 0.03 < above < 0.07


def test_a_drop_is_at_most_what_tangos_interval_ends_with() -> None:
    before, after = np.zeros(100), np.zeros(100)
    before[:9] = after[7:11] = 1  # 7 lost, 2 won
    assert most_drop(before, after, 0.95) == -least_drop(2, 7, 100, 0.95) > 0.05
    assert most_drop(before, after, 0.5) == pytest.approx(0.05)
    parts = np.linspace(0, 1, 100)  # of several labels an answer is right in part
    assert most_drop(parts, parts - 0.01, 0.95) == pytest.approx(0.01)
    assert most_drop(parts, parts[::-1], 0.95) == pytest.approx(1.645 * (parts - parts[::-1]).std() / 10, rel=1e-3)


def test_a_drop_is_above_its_bound_as_rarely_as_promised() -> None:
    generator, true = np.random.default_rng(0), 0.02
    wrong = 0
    for _ in range(400):
        draw = generator.random(200)
        before, after = draw < 0.90, np.where(draw < 0.93, draw >= 0.05, 0)  # 5 % lost, 3 % won
        wrong += most_drop(before, after, 0.95) < true
    assert wrong / 400 < 0.09
