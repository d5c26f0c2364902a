"""From where on a sample is none of the user's classes: measured when a model is exported, on what enters its head."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from tuner.arrays import Array, Doubles, Labels
from tuner.backends.torch.features.selection import Selection, drawn, local_folds, pool_selections, whole_partition
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.head import heads_of
from tuner.backends.torch.trial.edits.solve_again import head_inputs
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import MODEL, UNKNOWN
from tuner.bundle.info import Section, UnknownInfo
from tuner.errors import TrainingError
from tuner.ort.answer import DISTANCE
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import LOGITS, Session
from tuner.ort.unknown import distance_nodes
from tuner.plan.trial import TrialPlan
from tuner.ridge.unknown import Familiar, left_out_distances, threshold
from tuner.store.store import Store
from tuner.task.data.samples import mean_of_wholes

#: Most samples of a local partition that are looked at, and most global ones: 40 to 300 of those for training do as
#: well on three data sets; those for validation refuse fewer strangers on one.
MOST_LOCAL, MOST_GLOBAL = 500, 100
#: Samples that the written nodes are checked on.
CHECKED = 4


class Familiarity(NamedTuple):
    """What the user's samples look like to a model, and from where on a sample does not look like them."""

    familiar: Familiar
    info: UnknownInfo


def familiarity(opened: OpenTask, plan: TrialPlan, tail: nn.Module, store: Store | None = None) -> Familiarity | None:
    """Return what a trained tail's head tells of the user's samples; None of a tail or a task that cannot tell.

    Features of a solved head are those of the given model, so that samples judge each other by folds. Where the tail
    has trained, its samples are nearer to their classes than others are: validation samples, which it has not learned,
    set the threshold.
    """
    task = opened.task
    if not task.counted_classes or plan.heads.exits:
        return None
    local = [drawn(whole_partition(task, name), MOST_LOCAL) for name in ("local.train", "local.val")]
    whole = [whole_partition(task, "global.train")] if task.global_ is not None else []
    known = [drawn(one, MOST_GLOBAL) for one in pool_selections(task, plan) or whole]
    try:
        train, judges, *others = _read(tail, opened.inputs(plan, [*local, *known], store))
    except (TrainingError, ValueError):
        return None
    beside = others[0] if others else None
    own = _joined(train, judges)
    if plan.traits.solves:
        distances = _of_wholes(left_out_distances(own, beside, local_folds(*local)), local)
    else:
        distances = _of_wholes(Familiar.of(train, beside).distances(judges[0]), local[1:])
    learned = own if plan.traits.solves or plan.data.refit else train
    return Familiarity(Familiar.of(learned, beside), UnknownInfo(threshold(distances), len(distances), ""))


def write_unknown(
    opened: OpenTask, plan: TrialPlan, tail: nn.Module, folder: Path, store: Store | None = None
) -> dict[str, Any]:
    """Write `UNKNOWN` next to a written model, and return the section of ``bundle.json`` about it; nothing if None.

    Raises:
        BundleError: The nodes compute something else than numpy.
    """
    head_input = _head_input(folder / MODEL)
    if head_input is None or (found := familiarity(opened, plan, tail, store)) is None:
        return {}
    nodes, path, task = distance_nodes(head_input, found.familiar), folder / MODEL, opened.task
    batch = task.batch(task.local.val, np.arange(min(CHECKED, len(task.local.val))))
    written = Session(path, content=path.read_bytes() + nodes).run(batch, DISTANCE)[0]
    samples = replace(whole_partition(task, "local.val"), indices=np.arange(len(batch)))
    (seen,) = _read(tail, opened.inputs(plan, [samples]))
    expected = found.familiar.distances(seen[0])[:, None].astype(np.float32)
    require_parity("the distance to the user's samples", "numpy", largest_difference(expected, written))
    (folder / UNKNOWN).write_bytes(nodes)
    return {Section.UNKNOWN.value: asdict(replace(found.info, reads=head_input))}


def _read(tail: nn.Module, inputs: Sequence[TailInputs]) -> list[tuple[Array, Labels]]:
    """Return what enters a tail's head, and the labels; a `TrainingError` says why there is no such head."""
    sample = spatial(inputs[0].read(np.arange(1)))
    heads = list(heads_of(tail.eval().requires_grad_(), sample).values())
    if len(heads) != 1:
        raise TrainingError(f"a model must have one head, got {len(heads)}")
    return [(head_inputs(tail, heads[0], one)[0], one.labels) for one in inputs]


def _joined(*parts: tuple[Array, Labels]) -> tuple[Array, Labels]:
    features, labels = zip(*parts, strict=True)
    return np.concatenate(features), np.concatenate(labels)


def _of_wholes(distances: Doubles, selections: Sequence[Selection]) -> Doubles:
    """Return the distances of what is predicted as one: of a sound, the mean over its patches."""
    names = [one.samples.whole(int(index)) for one in selections for index in one.indices]
    return mean_of_wholes(distances[:, None], np.unique(names, return_inverse=True)[1])[:, 0]


def _head_input(path: Path) -> str | None:
    """Return the name of what the linear layer reads that gives a model's logits; None where none does."""
    from onnx import load

    makers = {name: node for node in load(path).graph.node for name in node.output}
    node = makers.get(LOGITS)
    while node is not None and node.op_type in {"Add", "Identity"}:
        node = next((makers[name] for name in node.input if name in makers), None)
    return node.input[0] if node is not None and node.op_type in {"Gemm", "MatMul"} else None
