"""Do two models differ on the same samples? McNemar's exact test.

Source: McNemar, Note on the sampling error of the difference between correlated proportions, Psychometrika 12 (1947);
exact, by the binomial distribution of the samples on which the two disagree.
"""

from fractions import Fraction
from math import comb


def harm(lost: int, won: int) -> float:
    """Return the one-sided p-value of harm: how likely are so many losses or more if the models are equally good.

    Args:
        lost: Samples that the old model has right and the new one wrong.
        won: Samples that the new model has right and the old one wrong.

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
    """P(X >= count) for X of Binomial(trials, 1/2), in whole numbers, so that no trials are too many for a float."""
    if not 0 <= count <= trials:
        raise ValueError(f"counts are at least 0, but {count} of {trials} disagreements were given")
    return float(Fraction(sum(comb(trials, one) for one in range(count, trials + 1)), 2**trials))
