"""Write what a bundle needs to train again without PyTorch, and check it by training it next to PyTorch.

Into ``train/`` go the traced step, the tail's inference, the plan's global samples as stored features (mixed in, as
training on new samples alone forgets), and other global samples that say what was forgotten. Of the user's own samples
nothing is written but the range of each feature channel.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuner.backends.torch.export.names import named_as
from tuner.backends.torch.export.trainable.adapters import write_adapters
from tuner.backends.torch.export.trainable.features import BATCH, Features
from tuner.backends.torch.export.trainable.rehearsal import Rehearsal, sufficient_replay, user_samples
from tuner.backends.torch.export.trainable.step_check import compare_training, random_labels
from tuner.backends.torch.features.selection import Selection, drawn, whole_partition
from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.inference import trace_inference
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.edits.edited import edited, probe_of
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import MODEL, WEIGHTS
from tuner.bundle.info import Section, TrainInfo, TrainKind
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.session import Session
from tuner.plan.trial import TrialPlan
from tuner.runtime.train.adapters import Adapters
from tuner.runtime.train.files import ADAPTERS, CHECK, MERGE, REPLAY, STEP, TAIL
from tuner.runtime.train.tail import TailTraining


def refuse_untrainable(tail: nn.Module, state: Mapping[str, Any], plan: TrialPlan) -> None:
    """Refuse, before anything is written, a tail whose weights the whole model does not have by the same names.

    Raises:
        BundleError: It is one.
    """
    strange = [name for name in tail.state_dict() if name not in state]
    changing = next((edit.kind for edit in plan.shape if not edit.traits.keeps_weights), None)
    if changing is not None or strange:
        why = f"the tail edit {changing}" if changing else f"a weight {strange[0]} that the model does not have"
        raise BundleError(
            f"--trainable can only write the model's own tail, but this tail has {why}: export without --trainable"
        )


def write_trainable(
    opened: OpenTask, plan: TrialPlan, tail: nn.Module, mixed: Sequence[Selection], folder: Path
) -> dict[str, Any]:
    """Write ``train/`` next to a model that was exported for it; see `tuner.backends.torch.export.whole.export`.

    The step trains what the plan's edits leave to train, and by the adapters that they make. It minimises the task's
    loss alone: a device has neither the plugins' terms nor the given model as a teacher.

    Args:
        opened: The task, its model, and what plugins add.
        plan: What was trained.
        tail: As it was trained.
        mixed: The global samples that it was trained on.
        folder: The bundle's.

    Returns:
        The section of ``bundle.json`` about it.

    Raises:
        BundleError: The step cannot be written, or trains other than PyTorch.
    """
    (folder / Section.TRAIN).mkdir(mode=0o700)
    task, names = opened.task, tuple(tail.state_dict())
    session = Session(folder / MODEL, plan.runtime.threads)
    features = Features(task, plan, session.features if plan.split else lambda pixels: pixels)
    codec, outputs, recipe, loss = (
        features.codec(),
        len(task.labels),
        plan.recipe,
        torch_loss(task.targets.smoothed(plan.recipe.label_smoothing)),
    )
    shape, check = codec.shape, features.check(codec.shape)
    seen = drawn(whole_partition(task, "local.train"), recipe.batch_size)
    inputs = features.of(seen)
    try:
        write(trace_inference(tail, input_shape=shape, outputs=outputs, batch_size=BATCH), folder / TAIL)
        given = tail
        if plan.shape:
            read = TailInputs(lambda rows: torch.from_numpy(inputs[rows]), seen.labels())
            edits = edited(opened.model, plan, opened.extensions, probe_of(read, loss, seed=0))
            tail, given = edits.tail, edits.tail if edits.given is None else edits.given
        step = trace(tail, recipe, loss=loss, input_shape=shape, outputs=outputs, batch_size=recipe.batch_size)
        write(named_as(given, tail, step), folder / STEP)
        adapted = write_adapters(given, folder)
    except StepError as error:
        reason = str(error).rpartition(": ")[0]
        raise BundleError(f"{reason}, so --trainable cannot write it: export without --trainable") from error
    labels, threads = random_labels(recipe, outputs, task.targets), plan.runtime.threads
    difference = compare_training(tail, recipe, folder / STEP, inputs, labels, loss.mean, threads, given)
    adapters = Adapters(folder / ADAPTERS, folder / MERGE) if adapted else None
    training = TailTraining(folder / STEP, adapters, threads, seed=0)
    local, exported = user_samples(features, task, codec), read_tensors(folder / WEIGHTS, names)
    rehearsal = Rehearsal(training, exported, recipe, plan.data, local, check, task.targets)
    replay = sufficient_replay(features, task, mixed, codec, lambda samples: rehearsal.drop(samples, folder))
    replay.save(folder / REPLAY)
    check.save(folder / CHECK)
    return TrainInfo(
        kind=TrainKind.ADAPTERS if adapted else TrainKind.TAIL,
        batch_size=recipe.batch_size,
        replay_samples=len(replay),
        check_samples=len(check),
        bits=codec.bits,
        bytes=sum(path.stat().st_size for path in (folder / Section.TRAIN).iterdir()),
        largest_loss_difference=difference,
        weights=names,
        cut=plan.split,
        left_out=tuple(term.kind for term in plan.loss),
    ).to_dict()
