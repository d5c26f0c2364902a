"""The given model before anything is trained: the first row of every result."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import Selection, scored_selections, whole_partition
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.head import heads_of
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.trial.edits.solve_again import head_inputs
from tuner.backends.torch.trial.inputs import TailInputs, computed_inputs, inference_prefix, stored_inputs
from tuner.backends.torch.trial.scoring import Scores, logits
from tuner.errors import UnsupportedError
from tuner.plan.parts import DataPlan
from tuner.results.records.trial import Outcome
from tuner.store.files.disk import StoreFull
from tuner.task import Task
from tuner.task.data.samples import mean_of_wholes, wholes


def untouched(access: Access, data: DataPlan) -> Outcome:
    """Score the given model, its own rows only; see `tuner.backends.base.Session.untouched`."""
    task, model = access.task, access.loaded
    rows = model.trusted_rows
    told = task.labelled and task.targets.has_classes
    scores, lacking = Scores(), sum(row >= rows for row in task.local_labels) if told else 0
    notes = () if not lacking else (lacks_outputs(lacking, len(task.local_labels)),)
    for domain, selections in scored_selections(task, data).items():
        name = f"{domain}_accuracy"
        access.report({"scoring": name})
        if domain == "local" and not task.labelled:
            scores.values[name] = 1.0  # the given model agrees with itself
            continue
        if domain == "local" and lacking == len(task.local_labels) > 0:
            continue  # it cannot be right, which says nothing of its features
        read = [stored_or_computed(access, selection) for selection in selections]
        outputs = np.concatenate([logits(model.tail(cut), inputs) for cut, inputs in read])
        labels = np.concatenate([inputs.labels for _, inputs in read])
        if not task.targets.one_class:
            scores.add(task, domain, outputs[:, :rows], labels[:, :rows])
        else:
            outputs[:, rows:] = -np.inf
            scores.add(task, domain, outputs, labels)
    return Outcome(scores.values, notes=notes, classes=scores.classes, right=tuple(scores.right))


def lacks_outputs(lacking: int, classes: int) -> str:
    """Say that the given model has no output for some of the user's classes."""
    which = "these classes" if lacking == classes else f"{lacking} of these {classes} classes"
    return f"the model has no output for {which}"


def given_probabilities(task: Task, model: OpenModel, partition: str) -> tuple[tuple[float, ...], ...]:
    """Return the given model's probabilities; see `tuner.backends.base.Session.given_probabilities`."""
    selection = whole_partition(task, partition)
    inputs = computed_inputs(task, inference_prefix(model, 0), [selection])
    outputs = logits(model.tail(0), inputs)[:, : model.trusted_rows]
    answers = task.targets.probabilities(outputs)
    means = mean_of_wholes(answers, wholes(selection.samples)[1])
    return tuple(tuple(row) for row in means.tolist())


def write_head_inputs(access: Access, partition: str, file: Path) -> tuple[str, ...]:
    """Write what the given model's head reads; see `tuner.backends.base.Session.head_inputs`."""
    selection = whole_partition(access.task, partition)
    cut, inputs = stored_or_computed(access, selection)
    tail = access.loaded.tail(cut).eval().requires_grad_()
    heads = list(heads_of(tail, spatial(inputs.read(np.arange(1)))).values())
    if len(heads) != 1:
        raise UnsupportedError(f"the model must end in one linear layer, but it has {len(heads)}: give another model")
    features, _ = head_inputs(tail, heads[0], inputs)
    names, places = wholes(selection.samples)
    labels = selection.samples.labels[np.unique(places, return_index=True)[1]]
    save_file({"features": mean_of_wholes(features, places).astype(np.float32), "labels": labels}, file)
    return names


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
