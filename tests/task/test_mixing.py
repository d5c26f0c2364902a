"""One order of samples, every prefix of which is stratified."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuner.plan.info import TaskInfo, share_of
from tuner.task.mixing import filling_order, mixed_indices, mixed_sizes, shared_indices

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=200).map(lambda values: np.array(values, np.int64))


@given(LABELS)
def test_every_prefix_is_stratified(labels: np.ndarray) -> None:
    order = filling_order(labels)
    assert sorted(order.tolist()) == list(range(len(labels)))
    classes, totals = np.unique(labels, return_counts=True)
    for count in range(1, len(labels) + 1):
        taken = np.array([(labels[order[:count]] == one).sum() for one in classes])
        assert (np.abs(taken - count * totals / len(labels)) <= len(classes)).all()
        if count >= len(classes):
            assert taken.min() >= 1


@given(LABELS, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_a_larger_share_takes_all_of_a_smaller_one(labels: np.ndarray, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert set(shared_indices(labels, small)) <= set(shared_indices(labels, large))
    assert len(shared_indices(labels, small)) == share_of(len(labels), small)
    assert len(shared_indices(labels, 1.0)) == len(labels)
    assert set(mixed_indices(labels, small)) <= set(mixed_indices(labels, large))
    assert [share_of(count, share) for count, share in ((9, 0.5), (7, 1e-9), (0, 0.5))] == [5, 1, 0]  # rounded up


def test_several_labels_a_sample_are_ordered_too() -> None:
    labels = np.zeros((30, 3), np.float32)
    labels[:10, 0] = labels[5:15, 1] = labels[20:22, 2] = 1
    order = filling_order(labels)
    assert sorted(order.tolist()) == list(range(30))
    assert labels[order[:4]].any(axis=0).all()


def test_samples_that_several_labels_take_are_counted_once() -> None:
    labels = (np.random.default_rng(0).random((500, 12)) < 0.15).astype(np.float32)
    assert mixed_sizes(np.arange(9)) == ()
    sizes = mixed_sizes(labels)
    assert [count for _, count in sizes] == [len(mixed_indices(labels, fraction)) for fraction, _ in sizes]
    sums = tuple(int(column.sum()) for column in labels.T)
    task = TaskInfo("t", "f", 1, 1, sums, global_mixed=sizes)
    assert task.mixed_samples(0) == 0
    assert task.mixed_samples(1) == 500 < sum(sums)
    for fraction in (1e-5, 0.013, 0.1, 0.37):
        assert abs(task.mixed_samples(fraction) - len(mixed_indices(labels, fraction))) <= 3
    assert TaskInfo("t", "f", 1, 1, (100, 60)).mixed_samples(0.1) == 16
