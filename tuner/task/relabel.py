"""The same samples under another order of labels."""

import numpy as np

from tuner.arrays import Labels
from tuner.task.data.samples import Samples, Subset


def relabelled(samples: Samples, rows: tuple[int, ...], outputs: int) -> Samples:
    """Return the samples with label `row` moved to row `rows[row]`.

    Args:
        samples: Samples with labels int64 [n], or float32 [n, len(rows)] multi-hot.
        rows: New row of every old one.
        outputs: Rows of the new head.
    """
    view = Subset(samples, np.arange(len(samples)))
    view.labels = _moved(samples.labels, rows, outputs)
    return view


def _moved(labels: Labels, rows: tuple[int, ...], outputs: int) -> Labels:
    order = np.asarray(rows, np.int64)
    if labels.ndim == 1:
        return order[labels.astype(np.int64)]
    wide = np.zeros((len(labels), outputs), np.float32)
    wide[:, order] = labels
    return wide
