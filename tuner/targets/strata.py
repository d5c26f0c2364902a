"""Labels as classes, by their shape alone: what samples are divided, mixed and balanced by.

Labels int64 [n] are one class a sample; float32 [n, k] zeros and ones are several; other numbers have no classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.arrays import Flags, Labels, RowNumbers


def strata(labels: Labels) -> Labels:
    """Return what samples are divided evenly by: their labels; of numbers, int64 [n] of zeros."""
    is_number = labels.ndim > 1 and not ((labels == 0) | (labels == 1)).all()
    return np.zeros(len(labels), np.int64) if is_number else labels


def one_each(labels: Labels, *, rarest: bool = True) -> RowNumbers:
    """Return one class a sample, int64 [n]: its label, its rarest or first one, or their number where it has none."""
    labels = strata(labels)
    if labels.ndim == 1:
        return labels.astype(np.int64)
    has = labels > 0
    counts = has.sum(axis=0) if rarest else np.zeros(labels.shape[1])
    own: RowNumbers = np.where(has, counts, np.inf).argmin(axis=1)
    return np.where(has.any(axis=1), own, labels.shape[1])


def members_of(labels: Labels) -> list[RowNumbers]:
    """Return the samples of each class that has any; and, with several labels, those of samples without any."""
    labels = strata(labels)
    if labels.ndim == 1:
        return [np.flatnonzero(labels == value) for value in np.unique(labels)]
    columns = [np.flatnonzero(labels[:, column] > 0) for column in range(labels.shape[1])]
    columns.append(np.flatnonzero(labels.sum(axis=1) == 0))
    return [column for column in columns if len(column)]


def presence(labels: Labels, classes: Labels | None = None) -> Flags:
    """Return which classes each sample has, bool [n, classes]; where labels are [n], of those given or that occur."""
    if labels.ndim > 1:
        return np.asarray(labels > 0)
    return np.asarray(labels[:, None] == (np.unique(labels) if classes is None else classes))


def occurring(labels: Labels) -> tuple[int, ...]:
    """Return the numbers of the classes that occur."""
    numbers = np.flatnonzero((labels > 0).any(axis=0)) if labels.ndim > 1 else np.unique(labels)
    return tuple(numbers.tolist())


def class_counts(labels: Labels, classes: int) -> RowNumbers:
    """Return how many samples each of so many classes has."""
    return np.asarray((labels > 0).sum(axis=0) if labels.ndim > 1 else np.bincount(labels, minlength=classes))


def has_any_only_in(labels: Labels, part: Flags) -> Flags:
    """Return which samples have one of several labels that no sample outside a part has, bool [n]."""
    labels = strata(labels)
    if labels.ndim == 1:
        return np.zeros(len(labels), bool)
    missing = (labels[~part] > 0).sum(axis=0) == 0  # bool [k]
    return np.asarray((labels[:, missing] > 0).any(axis=1))


def moved(labels: Labels, rows: Mapping[int, Sequence[int]], outputs: int) -> Labels:
    """Return labels by other numbers: int64 [n], or float32 [n, outputs].

    `rows` has the new numbers of each class: one, or where samples may have several labels any number.
    """
    if labels.ndim == 1:
        to_row = np.zeros(1 + max(labels.max(initial=0), *rows, 0), np.int64)
        for number, own in rows.items():
            to_row[number] = own[0] if own else 0
        numbers: RowNumbers = to_row[labels.astype(np.int64)]
        return numbers
    hot = np.zeros((len(labels), outputs), np.float32)
    for number, own in rows.items():
        for row in own:
            hot[:, row] = np.maximum(hot[:, row], labels[:, number])
    return hot
