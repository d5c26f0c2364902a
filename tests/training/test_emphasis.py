"""Which samples count for more: weights of mixed-in samples, and epochs whose classes are balanced."""

import numpy as np
import pytest

from tuner.arrays import Labels
from tuner.plan.parts import DataPlan
from tuner.training.emphasis import balanced_order, epoch_order, sample_weights

RARE = np.array([0] * 90 + [1] * 8 + [2] * 2)


def test_mixed_in_samples_weigh_what_the_plan_says() -> None:
    weights = sample_weights(DataPlan(0.1, weight=4.0), local=2, mixed=3)
    assert weights is not None
    assert weights.tolist() == [1, 1, 4, 4, 4]


@pytest.mark.parametrize(("weight", "mixed"), [(1.0, 3), (4.0, 0)])
def test_where_all_count_alike_there_are_no_weights(weight: float, mixed: int) -> None:
    assert sample_weights(DataPlan(0.1, weight=weight), local=2, mixed=mixed) is None


def test_balanced_epochs_hold_every_class_alike_in_every_batch() -> None:
    order = balanced_order(RARE)
    rows = order(np.random.default_rng(0))
    assert len(rows) == len(RARE)
    assert sorted(np.bincount(RARE[rows])) == [33, 33, 34]
    assert all(set(np.bincount(RARE[batch], minlength=3)) <= {2, 3, 4} for batch in rows[:90].reshape(-1, 10))


def test_every_sample_of_a_rare_class_and_over_epochs_of_a_frequent_one_takes_part() -> None:
    generator, order = np.random.default_rng(0), balanced_order(RARE)
    assert {98, 99, *range(90, 98)} <= set(order(generator).tolist())
    assert len({int(row) for _ in range(20) for row in order(generator)}) == len(RARE)


def test_without_balance_an_epoch_is_a_permutation() -> None:
    rows = epoch_order(DataPlan(), RARE)(np.random.default_rng(3))
    np.testing.assert_array_equal(rows, np.random.default_rng(3).permutation(len(RARE)))


def test_with_several_labels_the_rarest_counts() -> None:
    labels: Labels = np.zeros((10, 2), np.float32)
    labels[:8, 0] = 1
    labels[0, 1] = 1
    counts = np.bincount(balanced_order(labels)(np.random.default_rng(0)), minlength=10)
    assert counts[0] >= 3  # the only one with label 1
    assert counts[8:].sum() >= 3  # those without any
