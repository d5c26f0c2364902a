"""The given model before anything is trained: the first row of every result."""

from contextlib import suppress

import numpy as np

from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import Selection, validation_selections
from tuner.backends.torch.trial.inputs import TailInputs, tail_inputs
from tuner.backends.torch.trial.scoring import logits
from tuner.metrics import score
from tuner.store.disk import StoreFull


def untouched(access: Access, share: float) -> dict[str, float]:
    """Return the given model's accuracies, its own rows only; see `tuner.backends.base.Session.untouched`."""
    task, model = access.task, access.loaded
    cut = model.info.num_blocks - 1 if model.chain is not None else 0
    tail, rows = model.tail(cut), model.trusted_rows
    values = {}
    for selection in validation_selections(task, share):
        name = f"{selection.domain}_accuracy"
        access.report({"scoring": name})
        if selection.domain == "local" and not task.labelled:
            values[name] = 1.0  # agreement with itself
            continue
        inputs = _inputs(access, cut, selection)
        outputs = logits(tail, inputs)
        if task.loss == "multi-label":
            values[name] = score(outputs[:, :rows], inputs.labels[:, :rows], multi=True)
        else:
            outputs[:, rows:] = -np.inf
            values[name] = score(outputs, inputs.labels, multi=False) if rows else 0.0
    return values


def _inputs(access: Access, cut: int, selection: Selection) -> TailInputs:
    """Return what the last block reads: from the store where it holds all of it, as nothing is filled for this."""
    stored = None
    if access.loaded.chain is not None:
        with suppress(StoreFull):
            if not access.file(cut, VALIDATION_BITS).missing(selection.ids()):
                stored = Reader(access, cut, VALIDATION_BITS, [selection])
    return tail_inputs(access.task, access.loaded, cut, [selection], stored)
