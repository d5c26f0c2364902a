"""Whether a written model computes what it was written from."""

from collections.abc import Iterable

import numpy as np

from tuner.arrays import Floats
from tuner.errors import BundleError

#: Largest difference of logits between two implementations of one model.
TOLERANCE = 1e-3


def largest_difference(ours: Floats, theirs: Floats) -> float:
    """Return the largest difference of any element; NaN where there is one.

    Where the largest element is above 1, the difference is relative to it.
    """
    return float(np.abs(ours - theirs).max() / max(1.0, float(np.abs(theirs).max())))


def largest(differences: Iterable[float]) -> float:
    """Return the largest of some differences, 0 of none; NaN where there is one, unlike `max`."""
    return float(np.max([0.0, *differences]))


def require_parity(written: str, original: str, difference: float) -> None:
    """Raise BundleError where logits differ by more than `TOLERANCE`, or are not numbers.

    `written` and `original` say what computed them: ``"ONNX Runtime"``.
    """
    if not difference <= TOLERANCE:
        raise BundleError(
            f"{written}'s logits differ by {difference:.2g} from {original}'s, more than {TOLERANCE:g}: "
            "export or train again"
        )
