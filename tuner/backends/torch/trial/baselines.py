"""What anybody would try first: a linear layer on the frozen features, and simple models of the inputs themselves."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.selection import (
    Selection,
    judging_folds,
    local_folds,
    scored_selections,
    shared_partition,
)
from tuner.backends.torch.logistic import fit_linear
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.head import heads_of
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.scoring import SCORE_BATCH, Scores
from tuner.backends.torch.trial.untouched import stored_or_computed
from tuner.distribution import offered
from tuner.errors import BudgetError, TunerError
from tuner.machine.awake import CLOCK
from tuner.plan.parts import DataPlan
from tuner.planner.data_terms import CODED_BITS, EXACT_BITS
from tuner.results.records.baseline import LINEAR_PROBE, Baseline, packed
from tuner.targets import Targets
from tuner.task import Task
from tuner.training.schedule import batches_of

#: Group of the entry points of further models of vectors and windows; their names are the rows' names.
FITTERS = "tuner.baselines"
#: Inputs of more axes are maps, and of more numbers too many for a model without knowledge of their order.
MOST_AXES, MOST_NUMBERS = 2, 4096
#: Features of training samples are read in one of these widths.
WIDTHS = (VALIDATION_BITS, EXACT_BITS, CODED_BITS)
#: Takes inputs, float32 [n, d], and returns scores of the labels that it learned, float [n, rows].
Predict = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Learning:
    """What a baseline learns from.

    Attributes:
        inputs: float32 [n, d].
        labels: Of each sample, as the targets have them; of one class each, by the classes that occur.
        outputs: Number of scores.
        folds: Fold of each sample, int64 [n] from 1, by which settings may be chosen.
        targets: What a label is.
        until: Clock (`tuner.machine.awake.CLOCK`) by which fitting is to be over.
    """

    inputs: Floats
    labels: Labels
    outputs: int
    folds: RowNumbers
    targets: Targets
    until: float


#: Fits a model; returns it, and what it is, for people.
Fit = Callable[[Learning], tuple[Predict, str]]


def baselines(access: Access, data: DataPlan, within: float = math.inf) -> tuple[Baseline, ...]:
    """Fit and score what `access`'s task is compared with; see `tuner.backends.base.Session.baselines`."""
    if not access.task.labelled:
        return ()
    until = CLOCK.now() + within
    rows = [_row(access, data, LINEAR_PROBE, partial(_features, access, until), _linear, until)]
    shape = access.task.input_shape
    if len(shape) <= MOST_AXES and math.prod(shape) <= MOST_NUMBERS:
        read = partial(_flat, access.task)
        rows.append(_row(access, data, "linear head on the inputs", read, _linear, until))
        rows += [_row(access, data, name, read, _offered(name), until) for name in offered(FITTERS)]
    return tuple(rows)


def _row(
    access: Access, data: DataPlan, name: str, read: Callable[[Selection], Floats], fit: Fit, until: float
) -> Baseline:
    """Fit a baseline on local.train alone, once more for each fold that judges, and score it."""
    task, scores, started = access.task, Scores(), CLOCK.now()
    used = shared_partition(task, "local.train", data.share)
    try:
        if started >= until:
            raise BudgetError("not fitted: there was no time")
        seen, labels, folds = read(used), used.labels(), local_folds(used)
        judged = judging_folds(task, data.folds) if data.folds else np.zeros(len(used), np.int64)
        scored = {domain: selections[0] for domain, selections in scored_selections(task, data).items()}
        answered: dict[str, list[tuple[Floats, Labels]]] = {domain: [] for domain in scored}
        note = ""
        for fold in range(data.folds + 1):
            rest, held = judged != fold, judged == fold
            rows, own = task.targets.narrowed(labels[rest] if fold else labels)
            inputs = seen[rest] if fold else seen
            predict, what = fit(Learning(inputs, own, len(rows), folds[rest] if fold else folds, task.targets, until))
            widened = partial(_widened, rows, len(task.labels))
            if fold:
                answered["local"].append((widened(predict(seen[held])), labels[held]))
                continue
            note = what
            for domain, selection in scored.items():
                answered[domain].append((widened(predict(read(selection))), selection.labels()))
    except TunerError as error:
        return Baseline(name, share=data.share, note=str(error), folds=data.folds)
    for domain, parts in answered.items():
        scores.add(task, domain, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    classes = ", so that it answers no other class" if len(rows) < len(task.labels) and "global" in scored else ""
    note = f"{note}, fitted on local.train alone{classes}"
    hits = (task.targets.hits(*part) for part in answered["local"])
    # a text for each training that is scored, as of trials
    right = tuple(packed(one) for one in hits if one is not None)
    seconds = CLOCK.now() - started
    return Baseline(name, scores.values, data.share, note, seconds, scores.classes, right, data.folds)


def _widened(rows: RowNumbers, outputs: int, scores: Floats) -> Floats:
    """Return the scores in the rows of the union head, float32 [n, outputs]; the others are never the answer."""
    wide = np.full((len(scores), outputs), -np.inf, np.float32)
    wide[:, rows] = scores
    return wide


def _linear(learning: Learning) -> tuple[Predict, str]:
    """Fit a linear layer by the task's loss."""
    loss, folds = torch_loss(learning.targets), learning.folds
    head = fit_linear(learning.inputs, learning.labels, learning.outputs, loss, folds, learning.until)
    return (lambda inputs: head.scores(inputs).astype(np.float32)), learning.targets.linear_model


def _offered(name: str) -> Fit:
    """Return what a plugin fits."""

    def fit(learning: Learning) -> tuple[Predict, str]:
        fitter: Fit = offered(FITTERS)[name].load()
        return fitter(learning)

    return fit


def _flat(task: Task, selection: Selection) -> Floats:
    """Return the inputs as the model gets them, float32 [n, d]."""
    return np.concatenate([one.reshape(len(one), -1) for one in _batches(task, selection)])


def _batches(task: Task, selection: Selection) -> Iterator[Floats]:
    for rows in batches_of(selection.indices, SCORE_BATCH):
        yield task.batch(selection.samples, rows)


def _features(access: Access, until: float, selection: Selection) -> Floats:
    """Return what enters the last layer, float32 [n, features]: from the store, as far as it has them.

    Raises:
        TunerError: There is no such layer, or no time to compute what is not stored.
    """
    cut, inputs = stored_or_computed(access, selection, WIDTHS)
    tail, caught = access.loaded.tail(cut).eval(), list[torch.Tensor]()
    heads = list(heads_of(tail, spatial(inputs.read(np.arange(1)))).values())
    if len(heads) != 1:
        raise TunerError("not fitted: the model's outputs come from no single linear layer")
    handle = heads[0].register_forward_pre_hook(lambda _, values: caught.append(values[0].flatten(1).clone()))
    try:
        with torch.inference_mode():
            for rows in batches_of(np.arange(len(selection)), SCORE_BATCH):
                tail(spatial(inputs.read(rows)))
                if CLOCK.now() >= until:
                    raise BudgetError("not fitted: there was no time to compute features that are not stored")
    finally:
        handle.remove()
    features: Floats = torch.cat(caught).float().numpy()
    if len(features) != len(selection) or features.shape[1] != heads[0].weight.flatten(1).shape[1]:
        raise TunerError("not fitted: the model's last layer is applied in several positions")
    return features
