"""Labels as classes, by their shape alone: what samples are divided, mixed and balanced by.

Labels int64 [n] are one class a sample; float32 [n, k] zeros and ones are several; other numbers have no classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.arrays import Array, Doubles, Flags, Labels, RowNumbers

#: Weights of samples are multiples of 1/64, so that weighted sums are exact too, of a 64th of the samples.
PARTS = 64


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


def merged(labels: Labels, groups: RowNumbers) -> Labels | None:
    """Return the labels of groups of samples, by their numbers from 0; None where one has two classes, not labels."""
    joined = labels[np.unique(groups, return_index=True)[1]]
    if labels.ndim > 1:
        np.maximum.at(joined, groups, labels)
    elif (joined[groups] != labels).any():
        return None
    return joined


def stored(labels: Labels) -> Labels:
    """Return classes as files have them: int64 [n], or of several uint8 [n, k]."""
    return labels.astype(np.uint8 if labels.ndim > 1 else np.int64)


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


def one_hot(labels: Labels, outputs: int) -> Doubles:
    """Return labels as numbers to answer, float64 [n, outputs]: those of several labels, and numbers, are such."""
    return labels.astype(np.float64) if labels.ndim > 1 else np.eye(outputs)[labels]


def row_weights(labels: Labels) -> Doubles:
    """Return what each sample counts, so that its class counts as much as any other, float64 [n].

    That is the mean number of samples of a class over the number of the sample's own, in 64ths, at least one. Samples
    with several labels, or numbers, count one each: a row cannot count more for one label alone.
    """
    if labels.ndim > 1 or not len(labels):
        return np.ones(len(labels))
    counts = np.bincount(labels)
    mean = len(labels) / np.count_nonzero(counts)
    return np.asarray(np.maximum(np.rint(PARTS * mean / counts[labels]), 1) / PARTS)


def log_prior(labels: Labels, outputs: int) -> Doubles:
    """Return the log of each class's share of samples, counted once more than it occurs; ones of any other labels."""
    if labels.ndim > 1:
        return np.ones(outputs)
    plus_one = np.bincount(labels, minlength=outputs) + 1.0
    return np.asarray(np.log(plus_one / plus_one.sum()))


def as_choices(labels: Labels, weights: Doubles, *logits: Doubles) -> tuple[Array, ...]:
    """Return labels int64 [n], their weights and logits [..., n, outputs], each of several labels as a choice of two.

    These are [..., n · outputs, 2]: of the label, and of its absence, which are zeros.
    """
    if labels.ndim == 1:
        return labels, weights, *logits
    flat = [one.reshape(*one.shape[:-2], -1) for one in logits]
    pairs = (np.stack([one, np.zeros_like(one)], axis=-1) for one in flat)
    return 1 - (labels.ravel() > 0), np.repeat(weights, labels.shape[1]), *pairs


def occurring_choices(labels: Labels, weights: Array, scores: Doubles) -> tuple[Array, ...]:
    """Return `as_choices` among the classes that occur; scores [n, outputs] become parts of logits [k, n, classes].

    With several labels the second part is an offset of all: of one class, it would change nothing.
    """
    classes = np.array(occurring(labels), np.int64)
    parts = scores[None, :, classes]
    if labels.ndim == 1:
        return np.searchsorted(classes, labels), weights, parts
    return as_choices(labels[:, classes], weights, np.concatenate([parts, np.ones_like(parts)]))


def absent(labels: Labels, others: Labels) -> Flags:
    """Return which samples are of a class that no other is of, bool [n]; none of several labels, or of numbers."""
    return np.isin(labels, others, invert=True) if labels.ndim == 1 else np.zeros(len(labels), bool)


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
