"""Write the personalised model as ONNX, and check it against PyTorch on the validation samples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import fx, nn

from tuner.arrays import Floats
from tuner.backends.base import Exported, silent
from tuner.backends.lowering import trained_part
from tuner.backends.torch.export.check import Check, PixelScores, checked_partitions
from tuner.backends.torch.export.int8 import Answered, prepare, quantise
from tuner.backends.torch.export.trainable.tail import refuse_untrainable, write_solvable, write_trainable
from tuner.backends.torch.export.unknown import familiarity, write_unknown
from tuner.backends.torch.features.selection import Selection, validation_selections
from tuner.backends.torch.model.graph.layout import fast
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.trial.choice import trained_on
from tuner.backends.torch.trial.edits.edited import EditedTail, edited, fuse
from tuner.backends.torch.trial.edits.solved import solved_with, solver_of
from tuner.backends.torch.trial.inputs import kept_inputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.scoring import logits
from tuner.bundle.format import MODEL, WEIGHTS
from tuner.bundle.info import Section
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError, first_line
from tuner.files import private_file
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.plan.trial import TrialPlan
from tuner.runtime.train.files import OWN_BYTES
from tuner.store.store import Store
from tuner.targets.base import ACCURACY
from tuner.training.epochs import Report


def export(
    opened: OpenTask,
    plan: TrialPlan,
    weights: Path,
    folder: Path,
    *,
    trainable: bool = False,
    replay: int = OWN_BYTES,
    store: Store | None = None,
    report: Report = silent,
) -> Exported:
    """Write ``model.onnx`` and ``weights.safetensors``; see `tuner.backends.base.Session.export`.

    Where the plan's precision is int8, the frozen blocks are quantised after that check, and ``weights.safetensors``
    holds the tail's weights alone. All that follows is made by the quantised blocks: the scores, and the features that
    the tail trains on again, so that training shows it what a prediction does.

    With `trainable`, the frozen blocks' output is an output too, and the tail's weights keep their names and shapes, so
    that those trained later can take their place; see `tuner.backends.torch.export.trainable.tail`. What trains by
    steps gets at most `replay` bytes of the user's samples.

    Raises:
        BundleError: The model cannot be written as ONNX, or ONNX Runtime computes something else.
    """
    task, model, solved = opened.task, opened.model, None
    if trainable and plan.traits.solves:
        task.targets.need_classes(
            BundleError(
                "--trainable solves for heads of classes, and this is a regression: pick a trial that trains its head, "
                "or export without --trainable"
            )
        )
        solved = solver_of(opened.extensions, plan) or solved_with(weights)
    torch.set_num_threads(plan.runtime.threads)
    is_int8 = plan.runtime.precision == "int8"
    if is_int8:
        prepare(opened)
    kept = trained_weights(weights)
    edits = trained_tail(opened, plan, kept)
    tail = edits.tail
    given = {name: value.clone() for name, value in tail.state_dict().items()} if plan.traits.solves else {}
    fill(tail, kept, weights)
    state = {name: value.contiguous() for name, value in model.model.state_dict().items()}
    if trainable:
        refuse_untrainable(tail, state, plan)
    prefix = model.prefix(plan.split) if plan.split else nn.Identity()
    gives_features = (trainable or is_int8) and plan.split > 0
    # the exporter would trace each norm before it folds them; a tail that trains again keeps the names of its weights
    parts = Parts(_folded(prefix), tail if trainable else _folded(tail), with_features=gives_features).eval()
    sample = torch.from_numpy(task.batch(task.local.val, [0]))
    path = folder / MODEL
    try:
        outputs = [LOGITS, FEATURES] if gives_features else [LOGITS]
        write_onnx(parts, torch.cat([sample, sample]), path, outputs, optimize=not trainable)
    except OSError:
        raise  # of a full disk, not of the model
    except Exception as error:  # the exporter raises many kinds
        reason = first_line(error)
        raise BundleError(
            f"the model cannot be written as ONNX ({reason}): use a model without what ONNX does not have"
        ) from error
    with private_file(folder / WEIGHTS) as part:
        save_file(state, part)
    records = edits.records(model.model)
    partitions = checked_partitions(task, learned=plan.data.refit and not is_int8)
    check = Check(task, Session(path, 1).logits, nn.Sequential(prefix, tail).eval(), report, partitions)
    stored = {} if is_int8 else _stored_logits(opened, plan, tail, store)
    answered: Answered = {name: check.logits(samples, stored.get(name)) for name, samples in partitions.items()}
    difference = check.largest_difference()
    sections: dict[str, Any] = {}
    if is_int8:
        answered, info = quantise(opened, plan, tail, folder, answered)
        sections[Section.INT8.value] = info.to_dict()
    for name, samples in partitions.items():
        check.score(name, samples, answered[name])
    sections |= check.sections() | write_unknown(opened, plan, tail, folder, store)
    if records:
        sections[Section.EVOLVED.value] = records
    if trainable:
        mixed = trained_on(task, plan, weights)
        sections[Section.TRAIN.value] = (
            write_solvable(opened, plan, given, mixed, solved, folder)
            if solved is not None
            else write_trainable(opened, plan, tail, mixed, replay, folder)
        )
    return Exported({**check.scores, "largest_logit_difference": difference}, sections)


def judged(opened: OpenTask, plan: TrialPlan, weights: Path, store: Store | None = None) -> Exported:
    """Score a trained tail on the validation samples that `Session.judge` asks for, by PyTorch alone."""
    task, judged = opened.task, PixelScores(opened.task)
    selections = [one for one in validation_selections(task) if one.domain == "local" or judged.sets_thresholds]
    for selection, outputs in zip(selections, tail_logits(opened, plan, weights, selections, store), strict=True):
        judged.score(f"{selection.domain}{ACCURACY}", selection.samples, outputs)
    sections = judged.sections()
    if not plan.traits.solves:
        found = familiarity(opened, plan, loaded_tail(opened, plan, weights), store)
        sections |= {} if found is None else {Section.UNKNOWN.value: asdict(found.info)}
    return Exported(judged.scores, sections)


def tail_logits(
    opened: OpenTask, plan: TrialPlan, weights: Path, selections: Sequence[Selection], store: Store | None = None
) -> list[Floats]:
    """Return a trained tail's logits of each selection, float32 [n, outputs]."""
    tail = loaded_tail(opened, plan, weights)
    return [logits(tail, inputs) for inputs in opened.inputs(plan, selections, store)]


def _stored_logits(opened: OpenTask, plan: TrialPlan, tail: nn.Module, store: Store | None) -> dict[str, Floats]:
    """Return a tail's logits of the validation samples whose features are stored, by the name of their accuracy."""
    if store is None or not plan.cached:
        return {}
    access = opened.access(plan, store)
    kept = {f"{one.domain}{ACCURACY}": kept_inputs(access, plan, one) for one in validation_selections(opened.task)}
    return {name: logits(tail, inputs) for name, inputs in kept.items() if inputs is not None}


def loaded_tail(opened: OpenTask, plan: TrialPlan, weights: Path) -> nn.Module:
    """Return a trained tail with its weights."""
    torch.set_num_threads(plan.runtime.threads)
    kept = trained_weights(weights)
    tail = trained_tail(opened, plan, kept).tail
    fill(tail, kept, weights)
    return tail


def trained_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a trial, which may come from elsewhere or be damaged, as safely as those of a bundle.

    Raises:
        BundleError: They cannot be read, or are not finite numbers.
    """
    return {name: torch.from_numpy(value) for name, value in read_tensors(path).items()}


def fill(module: nn.Module, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Set a module's weights; a `BundleError` where those of the file are others."""
    types = {name: value.dtype for name, value in module.state_dict().items()}
    reason = "of another type" if any(types.get(name, one.dtype) != one.dtype for name, one in weights.items()) else ""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = first_line(error)
    if reason:
        raise BundleError(f"{path} does not hold the weights of this trial ({reason}): run it again")


def trained_tail(opened: OpenTask, plan: TrialPlan, weights: Mapping[str, torch.Tensor]) -> EditedTail:
    """Return the tail that some trained weights belong to: the given one, unless edits changed its layers."""
    given = opened.model.tail(plan.split)
    if plan.traits.keeps_weights and set(weights) == set(given.state_dict()):
        return EditedTail(given, given, {})
    edits = edited(opened.model, plan, opened.extensions)
    fuse(edits.tail)
    return edits


def _folded(part: nn.Module) -> nn.Module:
    """Return a part with its norms folded into the convolutions before them, where it is known how it computes."""
    return fast(part) if isinstance(part, fx.GraphModule) else part


class Parts(nn.Module):
    """The frozen blocks and the tail, under names that distinguish their weights."""

    def __init__(self, prefix: nn.Module, tail: nn.Module, *, with_features: bool) -> None:
        super().__init__()
        self.prefix, self.whole, self.with_features = prefix, tail, with_features
        self.tail = trained_part(tail)  # the file names weights by the module that has them last

    def forward(self, batch: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return the logits, and the features where they are wanted."""
        features = self.prefix(batch)
        logits: torch.Tensor = self.whole(features)
        return (logits, features) if self.with_features else logits
