"""How sure an exit is of numbers: by how near its values are to those of the exit before it.

Source: PABEE (Zhou et al., NeurIPS 2020): a sample leaves where the values of exits in a row differ by
less than a threshold. Here two in a row are compared, and the difference becomes a confidence, so that numbers have
thresholds of the same kind as labels.
"""

import numpy as np

from tuner.arrays import Doubles, Floats

#: Confidence of an exit that has none before it: of all thresholds, it is above 0 alone, at which all samples leave.
LEAST = 1e-6


def agreement(values: Floats | Doubles, before: Floats | Doubles) -> Doubles:
    """Return the confidence of values, float64 [..., n]: exp(−d), at least `LEAST`.

    d is the largest difference over the outputs, in standard deviations of the targets.

    Args:
        values: What an exit says, standardised, float32 [..., n, outputs].
        before: What the exit before it says, likewise.
    """
    with np.errstate(invalid="ignore"):  # of two infinite values; NaN is above no threshold
        distance = np.abs(values.astype(np.float64) - before).max(axis=-1)
    confidence: Doubles = np.maximum(np.exp(-distance), LEAST)
    return confidence


def agreements(values: Floats | Doubles) -> Doubles:
    """Return the confidence of every exit, float64 [exits, n].

    Args:
        values: What each says, standardised, float32 [exits, n, outputs].
    """
    first = np.full((1, values.shape[1]), LEAST)
    return np.concatenate([first, agreement(values[1:], values[:-1])])
