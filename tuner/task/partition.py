"""A seeded holdout, for data that comes without a validation set: stratified, or by person, session and recording."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.arrays import Labels, RowNumbers
from tuner.targets.strata import has_any_only_in, merged, one_each, presence, strata


def stratified_holdout(labels: Labels, fraction: float = 0.2, seed: int = 0) -> tuple[RowNumbers, RowNumbers]:
    """Divide samples so that both partitions have every class that can be divided.

    A class of two samples or more keeps at least one in each partition; a class of one stays with the rest. With
    several labels per sample, its rarest label decides where it is counted, and no label is held out that the rest
    lacks.

    Args:
        labels: int [n], or multi-hot [n, k]; targets [n, k] are of one class.
        fraction: Part of each class to hold out.
        seed: The same seed and labels give the same division.

    Returns:
        Sorted indices: the rest, and the samples held out.
    """
    classes = one_each(labels)
    generator = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), bool)
    for each in np.unique(classes):
        members = generator.permutation(np.flatnonzero(classes == each))
        if len(members) > 1:
            count = min(max(1, round(fraction * len(members))), len(members) - 1)
            held_out[members[:count]] = True
    held_out &= ~has_any_only_in(labels, held_out)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def fold_numbers(labels: Labels, folds: int, seed: int = 0) -> RowNumbers:
    """Return each sample's fold, int64 [n] from 1: folds, and each class's samples in them, differ by one at most.

    With several labels per sample, its rarest label decides where it is counted.
    """
    classes = one_each(labels)
    generator, numbers = np.random.default_rng(seed), np.empty(len(labels), np.int64)
    order = [generator.permutation(np.flatnonzero(classes == each)) for each in np.unique(classes)]
    numbers[np.concatenate(order)] = np.arange(len(labels)) % folds + 1
    return numbers


def recording_folds(labels: Labels, recordings: RowNumbers, folds: int) -> RowNumbers:
    """Return each sample's fold, int64 [n] from 1: one for a whole recording or session.

    A class that would be in one fold only is divided sample by sample. `recordings` has the number of the recording
    that each sample was cut from, or of the session it was taken in, int64 [n], from 0.
    """
    classes = one_each(labels)
    names, places = np.unique(classes, return_inverse=True)
    counts = np.zeros((int(recordings.max()) + 1, len(names)), np.int64)
    np.add.at(counts, (recordings, places), 1)
    if (np.count_nonzero(counts, axis=1) > 1).any():
        together = _balanced_folds(counts, folds)[recordings]
    else:
        first = np.unique(recordings, return_index=True)[1]
        together = fold_numbers(classes[first], folds)[recordings]
    is_alone = np.array([len(np.unique(together[places == place])) == 1 for place in range(len(names))])
    return np.where(is_alone[places], fold_numbers(classes, folds), together)


def _balanced_folds(counts: NDArray[np.int64], folds: int) -> RowNumbers:
    """Return the fold of each recording, from 1, the largest first: that with the smallest share of its classes.

    `counts` are its samples of each class, [recordings, classes].
    """
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    numbers, filled = np.zeros(len(counts), np.int64), np.zeros((folds, counts.shape[1]))
    for recording in np.argsort(-shares.sum(axis=1), kind="stable"):
        fold = int(np.argmin(filled @ (counts[recording] > 0)))
        numbers[recording], filled[fold] = fold + 1, filled[fold] + shares[recording]
    return numbers


def recording_holdout(
    labels: Labels, recordings: RowNumbers, sessions: Sequence[str], fraction: float = 0.2, seed: int = 0
) -> tuple[RowNumbers, RowNumbers]:
    """Divide windows so that those held out were recorded apart from the rest.

    Whole people are held out where there are several, else whole sessions, else whole recordings, of each class if no
    recording has several; never a label that the rest would lack.

    Args:
        labels: Labels of the windows: int [n], or multi-hot [n, k].
        recordings: Recording that each window was cut from, int64 [n].
        sessions: Sessions of the recordings, as ``"person/session"``.
        fraction: Part to hold out; at least one person, session or recording.
        seed: The same seed and data give the same division.

    Returns:
        Sorted indices: the rest, and the windows held out; none are held out where each label has one recording only.
    """
    labels = strata(labels)
    people = [session.rpartition("/")[0] or session for session in sessions]
    for names in (people, sessions):
        groups = np.unique(names, return_inverse=True)[1][recordings]
        held_out = _held_out_groups(labels, groups, fraction, seed)
        if held_out.any():
            return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    place = np.unique(recordings, return_inverse=True)[1]
    of_recordings = merged(labels, place)
    if of_recordings is None:
        held_out = _held_out_groups(labels, place, fraction, seed)
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    _, chosen = stratified_holdout(of_recordings, fraction, seed)
    held_out = np.isin(place, chosen)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def session_holdout(
    labels: Labels, sessions: RowNumbers, fraction: float = 0.2, seed: int = 0
) -> tuple[RowNumbers, RowNumbers]:
    """Divide samples so that whole sessions are held out, of each class about a fraction and at most half.

    Of a class whose sessions are too few or too large for half of that, samples are held out one by one: then samples
    of one session are on both sides.

    Args:
        labels: Labels of the samples.
        sessions: Number of the session that each was taken in, int64 [n].
        fraction: Part of each class to hold out.
        seed: The same seed and data give the same division.

    Returns:
        Sorted indices: the rest, and the samples held out.
    """
    hot, generator = presence(strata(labels)), np.random.default_rng(seed)
    groups = np.unique(sessions, return_inverse=True)[1]
    counts = np.zeros((groups.max() + 1, hot.shape[1]), np.int64)
    np.add.at(counts, groups, hot)
    total, held = counts.sum(axis=0), np.zeros(hot.shape[1], np.int64)
    chosen: list[int] = []
    for group in generator.permutation(len(counts)):
        own = counts[group]
        if (held < fraction * total)[own > 0].any() and (held + own <= total / 2)[own > 0].all():
            chosen.append(int(group))
            held += own
    held_out = np.isin(groups, chosen)
    for row in np.argsort(total):  # the rarest first
        here = np.flatnonzero(hot[:, row] & ~held_out)
        wanted = min(max(1, round(fraction * total[row])), total[row] - 1) - np.count_nonzero(hot[held_out, row])
        if np.count_nonzero(hot[held_out, row]) < fraction * total[row] / 2 and wanted > 0:
            held_out[generator.permutation(here)[:wanted]] = True
    held_out &= ~has_any_only_in(labels, held_out)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _held_out_groups(labels: Labels, groups: RowNumbers, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Mark the windows of a fraction of the groups; none where there is one group, or each is alone with a label."""
    hot = presence(labels)
    count = int(groups.max()) + 1
    remaining = min(max(1, round(fraction * count)), count - 1)
    held_out = np.zeros(len(labels), bool)
    for group in np.random.default_rng(seed).permutation(count):
        extended = held_out | (groups == group)
        if remaining and (hot[~extended].any(axis=0) == hot.any(axis=0)).all():
            held_out, remaining = extended, remaining - 1
    return held_out
