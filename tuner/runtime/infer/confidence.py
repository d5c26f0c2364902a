"""How far confidences of exits are from how right their answers are."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
BINS = 15


def expected_calibration_error(confidences: Floats, right: Floats) -> float:
    """Return the mean distance between confidence and accuracy over 15 bins, weighted by samples; Guo et al., 2017.

    Args:
        confidences: float [n].
        right: float [n], 1 where the answer is right.
    """
    bins = np.minimum((np.asarray(confidences) * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, np.asarray(confidences) - np.asarray(right), minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
