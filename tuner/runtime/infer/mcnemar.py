"""Tests for a difference between two models on the same samples: McNemar's, and bounds by Tango's against a margin.

Sources: McNemar, Note on the sampling error of the difference between correlated proportions, Psychometrika 12 (1947);
exact, by the binomial distribution of the samples on which the two disagree. Tango, Equivalence test and confidence
interval for the difference in proportions for the paired-sample design, Statistics in Medicine 17 (1998).
"""

from fractions import Fraction
from math import comb, inf, sqrt
from statistics import NormalDist

import numpy as np

from tuner.arrays import Array

_HALVINGS = 40  # of the interval in which the bound is searched


def harm(lost: int, won: int) -> float:
    """Return the one-sided p-value of harm: the probability of as many losses or more from equally good models.

    Args:
        lost: Number of samples that the old model has right and the new one wrong.
        won: Number of samples that the new model has right and the old one wrong.

    Raises:
        ValueError: A count is below zero.
    """
    if min(lost, won) < 0:
        raise ValueError(f"counts must be at least 0, got {lost} lost and {won} won")
    count = lost + won  # in whole numbers, which never overflow
    return float(Fraction(sum(comb(count, losses) for losses in range(lost, count + 1)), 2**count))


def least_drop(lost: int, won: int, count: int, confidence: float) -> float:
    """Return the lower one-sided bound of a drop of accuracy: it is at least as large, with this confidence.

    Args:
        lost: Number of samples that the old model has right and the new one wrong.
        won: Number of samples that the new model has right and the old one wrong.
        count: Number of all samples, at least 1.
        confidence: Above 0.5 and below 1.

    Returns:
        A share of the samples in [-1, 1]; below zero where it is not certain that there is a drop.

    Raises:
        ValueError: The counts are none of `count` samples.
    """
    if lost < 0 or won < 0 or count < max(1, lost + won):
        raise ValueError(f"{lost} lost and {won} won are not among {count} samples")
    quantile = NormalDist().inv_cdf(confidence)
    low, high = -1.0, (lost - won) / count
    for _ in range(_HALVINGS):  # the statistic falls as the drop rises
        middle = (low + high) / 2
        low, high = (middle, high) if _tango(lost, won, count, middle) > quantile else (low, middle)
    return low


def most_drop(before: Array, after: Array, confidence: float) -> float:
    """Return the upper one-sided bound of a drop of accuracy: it is at most as large, with this confidence.

    By Tango's test where an answer is right or wrong; by the normal distribution where it is right in part.

    Args:
        before: How far each answer is right, float [n] in [0, 1]; n is at least 1.
        after: The same of other answers to the same samples.
        confidence: From 0.5, at which the bound is the measured drop, to below 1.
    """
    differences, count = np.asarray(before, float) - np.asarray(after, float), len(before)
    if confidence > 0.5 and np.isin(differences, (-1, 0, 1)).all():  # noqa: PLR2004 - chance
        return -least_drop(int((differences < 0).sum()), int((differences > 0).sum()), count, confidence)
    spread = float(differences.std()) / sqrt(count)
    return float(differences.mean()) + NormalDist().inv_cdf(confidence) * spread


def _tango(lost: int, won: int, count: int, drop: float) -> float:
    """Return the score statistic of more than a drop; where the drop is zero it is McNemar's."""
    linear = lost + won - drop * (2 * count - lost + won)
    root = linear**2 + 8 * count * won * drop * (1 - drop)
    won_share = (linear + sqrt(max(0.0, root))) / (4 * count)  # likeliest share of samples won, if this is the drop
    variance = count * (2 * won_share + drop * (1 - drop))
    excess = lost - won - count * drop
    return excess / sqrt(variance) if variance > 0 else inf * excess if excess else 0.0
