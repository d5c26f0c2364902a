"""Predictions counted by class."""

import numpy as np

from tuner.results.records.counts import MOST_CONFUSED, ClassCounts


def test_what_is_right_and_what_is_taken_for_what_is_counted() -> None:
    labels = np.array([7, 7, 7, 7, 9, 9])
    counts = ClassCounts.of(np.array([7, 1, 1, 2, 9, 7]), labels)
    assert counts.rows == ((7, 1, 4), (9, 1, 2))
    assert counts.confused == ((7, 1, 2), (7, 2, 1), (9, 7, 1))


def test_with_no_mistake_nothing_is_confused() -> None:
    assert ClassCounts.of(np.array([3, 3]), np.array([3, 3])) == ClassCounts(((3, 2, 2),), ())


def test_of_many_classes_the_most_frequent_confusions_are_kept() -> None:
    labels = np.arange(210).repeat(3)
    predicted = (labels + 1) % 210
    predicted[:3] = 9
    counts = ClassCounts.of(np.append(predicted, 9), np.append(labels, 0))
    assert len(counts.confused) == MOST_CONFUSED
    assert counts.confused[0] == (0, 9, 4)
    assert len(counts.rows) == 210
