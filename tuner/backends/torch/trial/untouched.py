"""The given model before anything is trained: the first row of every result."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import Selection, scored_selections
from tuner.backends.torch.trial.inputs import TailInputs, computed_inputs, inference_prefix, stored_inputs
from tuner.backends.torch.trial.scoring import Scores, logits
from tuner.plan.parts import DataPlan
from tuner.results.records.trial import Outcome
from tuner.store.files.disk import StoreFull


def untouched(access: Access, data: DataPlan) -> Outcome:
    """Score the given model, its own rows only; see `tuner.backends.base.Session.untouched`."""
    task, model = access.task, access.loaded
    rows = model.trusted_rows
    scores, lacking = Scores(), sum(row >= rows for row in task.own_classes)
    notes = () if not lacking else (lacks_outputs(lacking, len(task.own_classes)),)
    for domain, selections in scored_selections(task, data).items():
        name = f"{domain}_accuracy"
        access.report({"scoring": name})
        if domain == "local" and not task.labelled:
            scores.values[name] = 1.0  # the given model agrees with itself
            continue
        if domain == "local" and lacking == len(task.own_classes) > 0:
            continue  # it cannot be right, which says nothing of its features
        read = [stored_or_computed(access, selection) for selection in selections]
        outputs = np.concatenate([logits(model.tail(cut), inputs) for cut, inputs in read])
        labels = np.concatenate([inputs.labels for _, inputs in read])
        scores.add(task, domain, task.targets.limited(outputs, rows), task.targets.first(labels, rows))
    return Outcome(scores.values, notes=notes, classes=scores.classes, right=tuple(scores.right))


def lacks_outputs(lacking: int, classes: int) -> str:
    """Say that the given model has no output for some of the user's classes."""
    which = "these classes" if lacking == classes else f"{lacking} of these {classes} classes"
    return f"the model has no output for {which}"


def stored_or_computed(
    access: Access, selection: Selection, widths: Sequence[int] = (VALIDATION_BITS,)
) -> tuple[int, TailInputs]:
    """Return the deepest cut at which all the samples are stored, and their features; else the model runs whole.

    `widths` are bits of records, of which the first is preferred.
    """
    task, model = access.task, access.loaded
    last = model.info.num_blocks - 1 if model.chain is not None else 0
    for cut, bits in ((cut, bits) for cut in range(last, 0, -1) for bits in widths):
        with suppress(StoreFull, LookupError):  # no room, or no scales
            if access.folder(cut, bits).exists() and not access.file(cut, bits).missing(selection.ids()):
                return cut, stored_inputs(Reader(access, cut, bits, [selection]), [selection])
    return last, computed_inputs(task, inference_prefix(model, last), [selection])
