"""The given model before anything is trained: the first row of every result."""

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
    scores = Scores()
    for domain, selections in scored_selections(task, data).items():
        name = f"{domain}_accuracy"
        access.report({"scoring": name})
        if domain == "local" and not task.labelled:
            scores.values[name] = 1.0  # the given model agrees with itself
            continue
        read = [_inputs(access, selection) for selection in selections]
        outputs = np.concatenate([logits(model.tail(cut), inputs) for cut, inputs in read])
        labels = np.concatenate([inputs.labels for _, inputs in read])
        if not task.targets.one_class:
            scores.add(task, domain, outputs[:, :rows], labels[:, :rows])
        elif not rows:
            scores.values[name] = 0.0
        else:
            outputs[:, rows:] = -np.inf
            scores.add(task, domain, outputs, labels)
    return Outcome(scores.values, classes=scores.classes)


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
    cut, inputs = _inputs(access, selection)
    tail = access.loaded.tail(cut).eval().requires_grad_()
    heads = list(heads_of(tail, spatial(inputs.read(np.arange(1)))).values())
    if len(heads) != 1:
        raise UnsupportedError(f"the model must end in one linear layer, but it has {len(heads)}: give another model")
    features, _ = head_inputs(tail, heads[0], inputs)
    names, places = wholes(selection.samples)
    labels = selection.samples.labels[np.unique(places, return_index=True)[1]]
    save_file({"features": mean_of_wholes(features, places).astype(np.float32), "labels": labels}, file)
    return names


def _inputs(access: Access, selection: Selection) -> tuple[int, TailInputs]:
    """Return the deepest cut at which all the samples are stored, and their features; else the model runs whole."""
    task, model = access.task, access.loaded
    last = model.info.num_blocks - 1 if model.chain is not None else 0
    for cut in range(last, 0, -1):
        if not access.folder(cut, VALIDATION_BITS).exists():
            continue
        with suppress(StoreFull):
            if not access.file(cut, VALIDATION_BITS).missing(selection.ids()):
                return cut, stored_inputs(Reader(access, cut, VALIDATION_BITS, [selection]), [selection])
    return last, computed_inputs(task, inference_prefix(model, last), [selection])
