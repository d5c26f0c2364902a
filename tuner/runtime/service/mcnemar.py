"""McNemar's exact test for a difference between two models on the same samples.

Source: McNemar, Note on the sampling error of the difference between correlated proportions, Psychometrika 12 (1947);
exact, by the binomial distribution of the samples on which the two disagree.
"""

from fractions import Fraction
from math import comb


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


def _at_least(count: int, trials: int) -> float:
    """Return P(X >= count) for X of Binomial(trials, 1/2), computed in whole numbers, which never overflow."""
    if not 0 <= count <= trials:
        raise ValueError(f"counts must be at least 0, got {count} of {trials} disagreements")
    return float(Fraction(sum(comb(trials, successes) for successes in range(count, trials + 1)), 2**trials))
