"""Scores of predictions, in numpy."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

#: Of the normal distribution, 95 % lie within so many standard deviations.
Z_95 = 1.96
#: Number of temperatures that a calibrated loss is the best of.
TEMPERATURES = 25
#: Number of bins of confidences.
BINS = 15


def r_squared(outputs: npt.NDArray[np.floating], targets: npt.NDArray[np.floating]) -> float:
    """Return the share of the targets' variance that is explained, the mean over outputs; it may be below 0.

    Both are float [n, outputs], in any unit. Outputs whose targets are all the same are left out; 0 where none is left.
    """
    truth = targets.astype(np.float64)
    residual = ((outputs - truth) ** 2).sum(axis=0)
    total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    varies = total > 0
    return float(np.mean(1 - residual[varies] / total[varies])) if varies.any() else 0.0


def mean_absolute_error(
    outputs: npt.NDArray[np.floating], targets: npt.NDArray[np.floating], std: tuple[float, ...] = ()
) -> float:
    """Return the mean absolute error of float [n, outputs]; `std` is what one is worth in each output's own unit."""
    return float((np.abs(outputs - targets.astype(np.float64)) * (std or (1.0,))).mean())


def top_k_accuracy(outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic], k: int) -> float:
    """Return the share of rows of which the label, int64 [n], is among the `k` largest outputs, float32 [n, classes].

    Of equal outputs the last count; one of -inf, for a class that the model does not know, is never among them.
    """
    largest = np.argsort(outputs, axis=1, kind="stable")[:, -k:]
    known = np.take_along_axis(outputs, largest, axis=1) > -np.inf
    return float(((largest == np.asarray(labels)[:, None]) & known).any(axis=1).mean())


def accuracy(outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> float:
    """Return the share of rows whose largest output, of float32 [n, classes], is the label, int64 [n]."""
    return float(np.mean(outputs.argmax(axis=1) == labels))


def balanced_accuracy(
    outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic], uneven: float = 0.0
) -> float | None:
    """Return the mean over the classes that occur of the share of each that is right; see `accuracy`.

    None where no class has `uneven` times as many samples as another.
    """
    rows, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if counts.max() < uneven * counts.min():
        return None
    right = np.bincount(places, outputs.argmax(axis=1) == labels, len(rows))
    return float(np.mean(right / counts))


def calibrated_loss(outputs: npt.NDArray[np.floating], labels: npt.NDArray[Any]) -> float:
    """Return the mean cross-entropy of single labels at the best of a few temperatures of the softmax.

    Where accuracies are alike, it tells better models apart than accuracies do: it counts how sure each answer is.

    Args:
        outputs: float32 [n, outputs], logits of any scale.
        labels: int64 [n].
    """
    logits = outputs.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    spread = max(float(np.abs(logits[np.isfinite(logits)]).mean()), 1e-12)
    losses = []
    for scale in np.geomspace(0.1, 100.0, TEMPERATURES) / spread:
        scaled = logits * scale
        right = np.take_along_axis(scaled, labels[:, None], axis=1)[:, 0]
        losses.append(float((np.log(np.exp(scaled).sum(axis=1)) - right).mean()))
    return min(losses)


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `count` samples.

    Source: Wilson 1927; it holds for few samples and for shares near 0 and 1 too.
    """
    squared = Z_95**2 / count
    centre = (share + squared / 2) / (1 + squared)
    half = math.sqrt(share * (1 - share) * squared + squared**2 / 4) / (1 + squared)
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def paired_interval(won: int, lost: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference between two shares of the same samples.

    Args:
        won: Samples that only the first has right.
        lost: Samples that only the second has right.
        count: Number of all samples.

    Source: Bonett and Price, Adjusted Wald interval for a difference of proportions based on matched pairs, 2012.
    """
    first, second = (won + 1) / (count + 2), (lost + 1) / (count + 2)
    half = Z_95 * math.sqrt((first + second - (first - second) ** 2) / (count + 2))
    return first - second - half, first - second + half


def percent(share: float, count: int = 0) -> str:
    """Return a share for people, with its 95 % interval where it is of so many samples: ``"92.5 % (86–96)"``."""
    if not count:
        return f"{100 * share:.1f} %"
    low, high = wilson(share, count)
    return f"{100 * share:.1f} % ({100 * low:.0f}–{100 * high:.0f})"


def macro_auc(outputs: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> float:
    """Return the mean over classes of the area under the ROC curve, ties counting half.

    Outputs are float32 [n, classes], labels 0 or 1. Classes without both are left out; 0.5 where none is left.

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

    Outputs are float [n, classes], labels 0 or 1. Classes without a positive are left out; 0 where none is left. Equal
    outputs make one step.
    """
    precisions = []
    for column in range(outputs.shape[1]):
        hits, counts, _ = _ranked(outputs[:, column], np.asarray(labels[:, column]) > 0)
        if hits[-1]:
            precisions.append(float(np.diff(hits, prepend=0) @ (hits / counts)) / hits[-1])
    return float(np.mean(precisions)) if precisions else 0.0


def f1_thresholds(probabilities: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> list[float]:
    """Return for each class the threshold in [0, 1] with the largest F1, halfway to the next lower probability.

    Both are float [n, classes], labels 0 or 1; 0.5 for a class without a positive, or without a negative.
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


def expected_calibration_error(confidences: npt.NDArray[np.floating], right: npt.NDArray[np.floating]) -> float:
    """Return the mean distance between confidence and accuracy over 15 bins, weighted by samples; Guo et al., 2017.

    Both are float [n]; `right` is 1 where the answer is.
    """
    bins = np.minimum((np.asarray(confidences) * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, np.asarray(confidences) - np.asarray(right), minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
