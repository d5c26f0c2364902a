"""The same samples under another order of labels."""

import numpy as np
import numpy.typing as npt

from tuner.task.samples import Samples, Subset


def relabelled(samples: Samples, rows: tuple[int, ...], outputs: int) -> Samples:
    """Return the samples with label `row` renamed to `rows[row]`.

    Args:
        samples: With labels int64 [n], or float32 [n, len(rows)] multi-hot.
        rows: New row of every old one.
        outputs: Rows of the new head.
    """
    moved = Subset(samples, np.arange(len(samples)))
    moved.labels = _moved(samples.labels, rows, outputs)
    return moved


def _moved(labels: npt.NDArray[np.generic], rows: tuple[int, ...], outputs: int) -> npt.NDArray[np.generic]:
    order = np.asarray(rows, np.int64)
    if labels.ndim == 1:
        return order[labels.astype(np.int64)]
    wide = np.zeros((len(labels), outputs), np.float32)
    wide[:, order] = labels
    return wide
