"""Quantise a written model's frozen blocks, and check what that costs.

The first attempt has every layer in int8: trials in int8 were trained and scored on it. Where an accuracy falls by more
than the plan allows, the layers that lose most stay in float32: one, then twice as many, while at least three quarters
of the weights are in int8. What counts is the measured loss on the samples that an export is scored on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from safetensors.torch import save_file
from torch import nn

from tuner.arrays import Floats
from tuner.backends.lowering import trained_part
from tuner.backends.torch.clock import in_turns
from tuner.backends.torch.export.check import CHECK_BATCH, scored_partitions
from tuner.backends.torch.features.engines import cut_name, exported_prefix
from tuner.backends.torch.features.int8 import calibration_batches, int8_prefix
from tuner.backends.torch.onnx.quantise import OPERATORS, Quantiser, part_of, with_prefix
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import MODEL, WEIGHTS
from tuner.bundle.scores import BYTES, SECONDS, Int8Info
from tuner.errors import BundleError, first_line
from tuner.metrics import percent
from tuner.ort.session import Session
from tuner.plan.parts import RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.runtime.infer.mcnemar import most_drop
from tuner.task import Task
from tuner.training.schedule import batches_of

#: Samples that the order of layers is from.
ORDER_SAMPLES = 16
#: Largest share of the frozen layers' weights that may stay in float32.
MOST_FLOAT = 0.25
CONFIDENCE = 0.95
#: Logits by the name of the accuracy.
Answered = Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A quantised model: its layers in float32 and all, its logits and scores, and the largest loss of one."""

    kept: int
    layers: int
    logits: Answered
    values: Mapping[str, float]
    loss: float
    worst: str


def prepare(opened: OpenTask) -> None:
    """Write the given model's frozen blocks, in float32 and in int8, where that was not done yet.

    That is before anything trained is in the model: the files hold all blocks that a trial may freeze.
    """
    try:
        exported_prefix(opened.model)
        int8_prefix(opened.task, opened.model)
    except Exception as error:  # the exporter raises many kinds
        raise _unquantisable(error) from error


def quantise(
    opened: OpenTask, plan: TrialPlan, tail: nn.Module, folder: Path, given: Answered
) -> tuple[Answered, Int8Info]:
    """Replace ``model.onnx`` by one whose frozen blocks are in int8, and ``weights.safetensors`` by the tail's weights.

    The bundle's folder holds a model in float32, whose logits are `given`. Returns the logits of the new one, and how
    the two compare.

    Raises:
        BundleError: The loss is larger than the plan allows, or the model cannot be quantised.
    """
    path, draft, task = folder / MODEL, folder / f"int8.{MODEL}", opened.task
    before = _scores(task, given)
    attempts = []
    try:
        for kept, layers, prefix in _prefixes(opened, plan.split):
            with_prefix(path, prefix, draft)
            attempts.append(_attempt(task, draft, kept, layers, before))
            if attempts[-1].loss <= plan.runtime.int8_loss:
                break
    except BundleError:
        raise
    except Exception as error:  # the quantiser raises many kinds
        raise _unquantisable(error) from error
    best = min(attempts, key=lambda attempt: attempt.loss)
    if not best.loss <= plan.runtime.int8_loss:
        raise BundleError(_refusal(task, best, before, plan.runtime))
    sessions, sample = [Session(one, 1) for one in (path, draft)], task.batch(task.local.val, [0])
    seconds = map(median, in_turns([partial(session.logits, sample) for session in sessions]))
    weights = folder / WEIGHTS
    sizes = [path.stat().st_size + weights.stat().st_size]
    draft.replace(path)
    save_file({name: value.contiguous() for name, value in trained_part(tail).state_dict().items()}, weights)
    sizes.append(path.stat().st_size + weights.stat().st_size)
    float32, int8 = (
        {**values, SECONDS: own, BYTES: float(size)}
        for values, own, size in zip((before, best.values), seconds, sizes, strict=True)
    )
    return best.logits, Int8Info(best.layers - best.kept, best.kept, float32, int8, _bounds(task, given, best.logits))


def _unquantisable(error: Exception) -> BundleError:
    reason = first_line(error.__cause__ or error)
    return BundleError(f"the frozen blocks cannot be quantised ({reason}): export a trial in float32, without --int8")


def _prefixes(opened: OpenTask, cut: int) -> Iterator[tuple[int, int, Any]]:
    """Yield the frozen blocks attempt by attempt: layers in float32, all layers, and the blocks as an ONNX model.

    The first are those that trials in int8 read their features from.
    """
    task, model, names = opened.task, opened.model, [cut_name(cut)]
    frozen = part_of(int8_prefix(task, model), names)
    yield 0, sum(node.op_type in OPERATORS for node in frozen.graph.node), frozen
    batches = list(calibration_batches(task))
    quantiser = Quantiser(exported_prefix(model), names, batches)
    order = quantiser.by_sensitivity(np.concatenate([batches[0], batches[-1]])[:ORDER_SAMPLES])
    most, count = MOST_FLOAT * sum(quantiser.layers.values()), 1
    while count < len(order) and sum(quantiser.layers[name] for name in order[:count]) <= most:
        yield count, len(order), quantiser.quantised(order[:count])
        count *= 2


def _attempt(task: Task, model: Path, kept: int, layers: int, before: Mapping[str, float]) -> Attempt:
    session = Session(model)
    logits = {
        name: np.concatenate(
            [session.logits(task.batch(samples, rows)) for rows in batches_of(np.arange(len(samples)), CHECK_BATCH)]
        )
        for name, samples in scored_partitions(task).items()
    }
    values = _scores(task, logits)
    losses = {name: before[name] - value for name, value in values.items()}
    worst = max(losses, key=lambda name: np.nan_to_num(losses[name], nan=np.inf))
    return Attempt(kept, layers, logits, values, losses[worst], worst)


def _scores(task: Task, logits: Answered) -> dict[str, float]:
    partitions = scored_partitions(task)
    return {name: task.targets.score(own, partitions[name].labels) for name, own in logits.items()}


def _bounds(task: Task, given: Answered, quantised: Answered) -> dict[str, float]:
    """Return the most that is lost with 95 % confidence, by accuracy."""
    bounds = {}
    for name, samples in scored_partitions(task).items():
        before, after = (task.targets.hits(logits[name], samples.labels) for logits in (given, quantised))
        if before is not None and after is not None:
            bounds[name] = most_drop(before, after, CONFIDENCE)
    return bounds


def _refusal(task: Task, best: Attempt, before: Mapping[str, float], runtime: RuntimePlan) -> str:
    """Return why the best attempt is not good enough."""
    count = len(scored_partitions(task)[best.worst])
    floats = f" with {best.kept} of {best.layers} layers in float32" if best.kept else ""
    return (
        f"int8 lowers {best.worst.replace('_', ' ')} by {100 * best.loss:.1f} points{floats}, from "
        f"{percent(before[best.worst])} to {percent(best.values[best.worst])} of {count:,} samples, more than "
        f"--int8-loss {100 * runtime.int8_loss:g}: allow more, or export a trial in float32, without --int8"
    )
