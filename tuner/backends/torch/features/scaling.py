"""The scales of coded features, fixed once for each cut on the samples that are filled first."""

from collections.abc import Sequence
from itertools import islice, zip_longest

import numpy as np

from tuner.arrays import Floats
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.batches import Batch, batches
from tuner.backends.torch.features.prefix import Prefix
from tuner.planner.data_terms import EXACT_BITS
from tuner.planner.device import CALIBRATION_SAMPLES, FILL_BATCH, UNSCALED_BYTES
from tuner.store.codec import calibrate
from tuner.store.files.disk import StoreFull
from tuner.store.kept import scales, write_scales
from tuner.task import Task

CALIBRATION_POSITIONS = 64
#: A pass that is asked to stop uses as few.
LEAST_BATCHES = 4


def fix_scales(access: Access, prefix: Prefix, cuts: Sequence[int]) -> dict[Batch, dict[int, Floats]]:
    """Fix the scales of every cut that has none: the local and global training samples that are filled first.

    Returns:
        What was computed for it, as far as it may be held: these batches need not run again.
    """
    unscaled = [cut for cut in cuts if access.scales(cut) is None]
    if not unscaled:
        return {}
    thinned: dict[int, list[Floats]] = {cut: [] for cut in unscaled}
    held: dict[Batch, dict[int, Floats]] = {}
    room = UNSCALED_BYTES
    todo = _calibration_batches(access.task)
    for number, (batch, outputs) in enumerate(prefix.over(todo)):
        enough = access.report({"calibrated": number + 1, "of": len(todo)}) and number + 1 >= LEAST_BATCHES
        for cut in unscaled:
            thinned[cut].append(_thinned(outputs[cut]))
        room -= sum(output.nbytes for output in outputs.values())
        if room >= 0:
            held[batch] = outputs
        if enough:
            break
    for cut in unscaled:
        low, high = calibrate(np.concatenate(thinned.pop(cut)))
        key = access.key(cut, EXACT_BITS)
        try:
            write_scales(access.store, key, access.loaded.task_fingerprint, low, high)
        except StoreFull as error:
            access.unstored[cut] = scales(key, low, high)
            access.report({"warning": f"{error}; every trial computes the scales anew"})
    return held


def _calibration_batches(task: Task) -> list[Batch]:
    """Return the 256 training samples that are filled first, of the local ones and of the global ones, in turns."""
    domains = {"local": task.local, "global": task.global_}
    whole = ({f"{name}.train": set(range(len(one.train)))} for name, one in domains.items() if one is not None)
    first = (islice(batches(task, wanted), CALIBRATION_SAMPLES // FILL_BATCH) for wanted in whole)
    return [batch for pair in zip_longest(*first) for batch in pair if batch is not None]


def _thinned(maps: Floats) -> Floats:
    """Return [n, C, at most 64 positions], evenly spread: quantiles need no more."""
    flat = maps.reshape(*maps.shape[:2], -1)
    return np.ascontiguousarray(flat[:, :, :: -(-flat.shape[2] // CALIBRATION_POSITIONS)])
