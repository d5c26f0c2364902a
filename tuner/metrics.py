"""Scores of predictions, in numpy."""

import math

import numpy as np
import numpy.typing as npt

#: Of the normal distribution, 95 % lie within so many standard deviations.
Z_95 = 1.96


def score(outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic], *, multi: bool) -> float:
    """Return the accuracy; where a sample may have several labels, the macro AUC.

    Args:
        outputs: float32 [n, classes].
        labels: int64 [n], or float32 [n, classes] of several labels.
        multi: Whether a sample may have several labels.
    """
    return macro_auc(outputs, labels) if multi else accuracy(outputs, labels)


def top_right(
    outputs: npt.NDArray[np.float32], labels: npt.NDArray[np.generic], *, multi: bool
) -> npt.NDArray[np.bool_]:
    """Return for each row whether its largest output is the label, or one of the labels; bool [n].

    Args:
        outputs: float32 [n, classes].
        labels: int64 [n], or float32 [n, classes] of several labels.
        multi: Whether a sample may have several labels.
    """
    best = outputs.argmax(axis=1)
    right: npt.NDArray[np.bool_] = np.asarray(labels)[np.arange(len(best)), best] > 0 if multi else best == labels
    return right


def accuracy(outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> float:
    """Return the share of rows whose largest output is the label.

    Args:
        outputs: float32 [n, classes].
        labels: int64 [n].
    """
    return float(np.mean(outputs.argmax(axis=1) == labels))


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `count` samples.

    Source: Wilson 1927; it holds for few samples and for shares near 0 and 1 too.
    """
    squared = Z_95**2 / count
    centre = (share + squared / 2) / (1 + squared)
    half = math.sqrt(share * (1 - share) * squared + squared**2 / 4) / (1 + squared)
    return max(0.0, centre - half), min(1.0, centre + half)


def percent(share: float, count: int = 0) -> str:
    """Return a share for people, with its 95 % interval where it is of so many samples: ``"92.5 % (86–96)"``."""
    if not count:
        return f"{100 * share:.1f} %"
    low, high = wilson(share, count)
    return f"{100 * share:.1f} % ({100 * low:.0f}–{100 * high:.0f})"


def macro_auc(outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> float:
    """Return the mean over classes of the area under the ROC curve, ties counting half.

    Classes without both a positive and a negative are left out; 0.5 where none is left.

    Args:
        outputs: float32 [n, classes].
        labels: float32 [n, classes], 0 or 1.

    Source: the rank-sum form (Mann and Whitney, 1947), equal to the trapezoidal rule MoIL uses.
    """
    areas = []
    for column in range(outputs.shape[1]):
        positive = np.asarray(labels[:, column]) > 0
        count, rest = int(positive.sum()), int((~positive).sum())
        if count and rest:
            _, inverse, sizes = np.unique(outputs[:, column], return_inverse=True, return_counts=True)
            mean_ranks = np.cumsum(sizes) - (sizes - 1) / 2
            ranks = mean_ranks[inverse]
            areas.append((ranks[positive].sum() - count * (count + 1) / 2) / (count * rest))
    return float(np.mean(areas)) if areas else 0.5


def mean_average_precision(outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> float:
    """Return the mean over classes of the average precision: precision summed over the steps of recall.

    Classes without a positive are left out; 0 where none is left. Equal outputs make one step.

    Args:
        outputs: float [n, classes].
        labels: float32 [n, classes], 0 or 1.
    """
    precisions = []
    for column in range(outputs.shape[1]):
        hits, counts, _ = _ranked(outputs[:, column], np.asarray(labels[:, column]) > 0)
        if hits[-1]:
            precisions.append(float(np.diff(hits, prepend=0) @ (hits / counts)) / hits[-1])
    return float(np.mean(precisions)) if precisions else 0.0


def f1_thresholds(probabilities: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> list[float]:
    """Return for each class the threshold with the largest F1, halfway to the next lower probability.

    Args:
        probabilities: float [n, classes].
        labels: float [n, classes], 0 or 1.

    Returns:
        In [0, 1]; 0.5 for a class without a positive, or without a negative.
    """
    thresholds = []
    for column in range(probabilities.shape[1]):
        positive = np.asarray(labels[:, column]) > 0
        hits, counts, values = _ranked(probabilities[:, column], positive)
        if not hits[-1] or positive.all():
            thresholds.append(0.5)
            continue
        best = int((2 * hits / (counts + hits[-1])).argmax())
        lower = values[best + 1] if best + 1 < len(values) else 0.0
        thresholds.append(float(values[best] + lower) / 2)
    return thresholds


def _ranked(
    outputs: npt.NDArray[np.floating], positive: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.floating]]:
    """Return at each distinct output, from the largest: positives and rows at or above it, and the output."""
    values, inverse, sizes = np.unique(-outputs, return_inverse=True, return_counts=True)
    hits = np.bincount(inverse, positive, len(values)).astype(np.int64)
    return np.cumsum(hits), np.cumsum(sizes), -values
