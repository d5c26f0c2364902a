"""Array types, by what they hold."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]
RowNumbers = npt.NDArray[np.int64]
#: int64 [n], one label a sample; or float32 [n, outputs], several: zeros and ones; or targets, any numbers.
Labels = npt.NDArray[Any]


def strata(labels: Labels) -> Labels:
    """Return what samples are divided evenly by: their labels; of targets, which have no classes, one for all.

    Args:
        labels: int64 [n], or float32 [n, outputs].

    Returns:
        The labels, or int64 [n] of zeros.
    """
    is_target = labels.ndim > 1 and not ((labels == 0) | (labels == 1)).all()
    return np.zeros(len(labels), np.int64) if is_target else labels
