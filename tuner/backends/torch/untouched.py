"""The given model as it is: what every trial is compared with."""

from contextlib import suppress

import numpy as np
import torch

from tuner.backends.base import Report
from tuner.backends.scores import accuracy, macro_auc
from tuner.backends.torch.features import VALIDATION_BITS, Access, validation
from tuner.backends.torch.model import Loaded
from tuner.backends.torch.reader import Reader
from tuner.backends.torch.training import logits, source
from tuner.store.records import StoreFull
from tuner.store.store import Store
from tuner.task import Task


def untouched(task: Task, loaded: Loaded, store: Store, report: Report) -> dict[str, float]:
    """Return the given model's accuracies, its own rows only; see `tuner.backends.base.Backend.untouched`."""
    split = loaded.info.num_blocks - 1 if loaded.chain is not None else 0
    access = Access(task, loaded, store, torch.get_num_threads(), report)
    tail = loaded.tail(split)
    values = {}
    for pick in validation(task):
        name = pick.split.replace(".val", "_accuracy")
        report({"scoring": name})
        stored = None
        if loaded.chain is not None:
            with suppress(StoreFull):
                if not access.file(split, VALIDATION_BITS).missing(pick.ids()):
                    stored = Reader(access, split, VALIDATION_BITS, [pick])
        rows = source(task, loaded, split, [pick], stored)
        outputs = logits(tail, rows)
        outputs[:, loaded.trusted_rows :] = -np.inf
        if task.loss == "multi-label":
            values[name] = macro_auc(outputs[:, : loaded.trusted_rows], rows.labels[:, : loaded.trusted_rows])
        else:
            values[name] = accuracy(outputs, rows.labels) if loaded.trusted_rows else 0.0
    return values
