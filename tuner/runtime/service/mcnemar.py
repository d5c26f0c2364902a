"""Tests for a difference between two models on the same samples: McNemar's, and Tango's against a margin.

Sources: McNemar, Note on the sampling error of the difference between correlated proportions, Psychometrika 12 (1947);
exact, by the binomial distribution of the samples on which the two disagree. Tango, Equivalence test and confidence
interval for the difference in proportions for the paired-sample design, Statistics in Medicine 17 (1998).
"""

from fractions import Fraction
from math import comb, inf, sqrt
from statistics import NormalDist

_HALVINGS = 40  # of the interval in which the bound is searched


def harm(lost: int, won: int) -> float:
    """Return the one-sided p-value of harm: the probability of as many losses or more from equally good models.

    Args:
        lost: Number of samples that the old model has right and the new one wrong.
        won: Number of samples that the new model has right and the old one wrong.

    Raises:
        ValueError: A count is below zero.
    """
    return _at_least(lost, lost + won)


def difference(lost: int, won: int) -> float:
    """Return the two-sided p-value: twice the smaller tail, 1 at most; arguments as in `harm`.

    Raises:
        ValueError: A count is below zero.
    """
    return min(1.0, 2 * _at_least(max(lost, won), lost + won))


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


def _tango(lost: int, won: int, count: int, drop: float) -> float:
    """Return the score statistic of more than a drop; where the drop is zero it is McNemar's."""
    linear = lost + won - drop * (2 * count - lost + won)
    root = linear**2 + 8 * count * won * drop * (1 - drop)
    won_share = (linear + sqrt(max(0.0, root))) / (4 * count)  # likeliest share of samples won, if this is the drop
    variance = count * (2 * won_share + drop * (1 - drop))
    excess = lost - won - count * drop
    return excess / sqrt(variance) if variance > 0 else inf * excess if excess else 0.0


def _at_least(count: int, trials: int) -> float:
    """Return P(X >= count) for X of Binomial(trials, 1/2), computed in whole numbers, which never overflow."""
    if not 0 <= count <= trials:
        raise ValueError(f"counts must be at least 0, got {count} of {trials} disagreements")
    return float(Fraction(sum(comb(trials, successes) for successes in range(count, trials + 1)), 2**trials))
