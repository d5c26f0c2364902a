"""A seeded holdout, for data that comes without a validation set: stratified, or by person, session and recording."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def stratified_holdout(
    labels: NDArray[Any], fraction: float = 0.2, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide samples so that both sides see every class they can.

    A class of two samples or more keeps at least one on each side; a class of one stays with the rest. With several
    labels a sample, its rarest label decides where it is counted, and no label is held out that the rest lacks.

    Args:
        labels: int [n], or multi-hot [n, k].
        fraction: Part of each class to hold out.
        seed: Same seed and labels, same division.

    Returns:
        Sorted indices: the rest, and those held out.
    """
    several = labels.ndim > 1
    strata = _rarest(labels) if several else labels
    generator = np.random.default_rng(seed)
    held = np.zeros(len(labels), bool)
    for stratum in np.unique(strata):
        members = generator.permutation(np.flatnonzero(strata == stratum))
        if len(members) > 1:
            count = min(max(1, round(fraction * len(members))), len(members) - 1)
            held[members[:count]] = True
    if several:
        lacking = (labels[~held] > 0).sum(axis=0) == 0
        held &= ~(labels[:, lacking] > 0).any(axis=1)
    return np.flatnonzero(~held), np.flatnonzero(held)


def recording_holdout(
    labels: NDArray[Any],
    recordings: NDArray[np.int64],
    sessions: Sequence[str],
    fraction: float = 0.2,
    seed: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide windows so that what is held out was recorded apart from the rest.

    Whole people are held out where there are several, else whole sessions, else whole recordings of each class; never
    a label that the rest would lack.

    Args:
        labels: Of the windows: int [n], or multi-hot [n, k].
        recordings: int64 [n], which recording each window was cut from.
        sessions: Of the recordings, as ``"person/session"``.
        fraction: Part to hold out; at least one person, session or recording.
        seed: Same seed and data, same division.

    Returns:
        Sorted indices: the rest, and those held out; none are held out where each label has one recording only.
    """
    people = [session.rpartition("/")[0] or session for session in sessions]
    for names in (people, sessions):
        groups = np.unique(names, return_inverse=True)[1][recordings]
        held = _held_groups(labels, groups, fraction, seed)
        if held.any():
            return np.flatnonzero(~held), np.flatnonzero(held)
    _, first, place = np.unique(recordings, return_index=True, return_inverse=True)
    _, chosen = stratified_holdout(labels[first], fraction, seed)
    held = np.isin(place, chosen)
    return np.flatnonzero(~held), np.flatnonzero(held)


def _held_groups(labels: NDArray[Any], groups: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Mark the windows of a fraction of the groups; none where there is one group, or each is alone with a label."""
    hot = labels > 0 if labels.ndim > 1 else labels[:, None] == np.unique(labels)  # bool [n, k]
    count = int(groups.max()) + 1
    wanted = min(max(1, round(fraction * count)), count - 1)
    held = np.zeros(len(labels), bool)
    for group in np.random.default_rng(seed).permutation(count):
        more = held | (groups == group)
        if wanted and (hot[~more].any(axis=0) == hot.any(axis=0)).all():
            held, wanted = more, wanted - 1
    return held


def _rarest(labels: NDArray[Any]) -> NDArray[np.int64]:
    """The rarest positive column of each row; the number of columns for a row without any."""
    present = labels > 0
    counts = np.where(present, present.sum(axis=0), len(labels) + 1)  # int [n, k]
    rarest: NDArray[np.int64] = np.where(present.any(axis=1), counts.argmin(axis=1), labels.shape[1])
    return rarest
