"""The same samples under another order of labels."""

import numpy as np

from tuner.targets.strata import moved
from tuner.task.data.samples import Samples, Subset


def relabelled(samples: Samples, rows: tuple[int, ...], outputs: int) -> Samples:
    """Return the samples with label `row` moved to row `rows[row]`.

    Args:
        samples: Samples with labels int64 [n], or float32 [n, len(rows)] multi-hot.
        rows: New row of every old one.
        outputs: Rows of the new head.
    """
    view = Subset(samples, np.arange(len(samples)))
    view.labels = moved(samples.labels, {old: (new,) for old, new in enumerate(rows)}, outputs)
    return view
