"""Write what a bundle needs to train its tail again, or to solve for it, without PyTorch.

Into ``train/`` go the plan's global samples as stored features, mixed in as training on new samples alone forgets, and
other global samples that say what was forgotten; and some of the user's own samples, so that a round on new ones
does not forget them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tuner.backends.lowering import trained_part
from tuner.backends.torch.export.trainable.edits import named_as, write_adapters
from tuner.backends.torch.export.trainable.features import BATCH, Features
from tuner.backends.torch.export.trainable.rehearsal import sufficient_replay, tried_round
from tuner.backends.torch.export.trainable.step_check import compare_training, random_labels, unwritable
from tuner.backends.torch.features.selection import Selection, drawn, training_selections, whole_partition
from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.inference import trace_inference
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.edits.edited import edited, probe_of
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import MODEL, WEIGHTS
from tuner.bundle.info import Section, TrainKind
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.session import Session
from tuner.plan.trial import TrialPlan
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import UnionSettings
from tuner.runtime.train.adapters import Adapters
from tuner.runtime.train.files import ADAPTERS, MERGE, OWN, STEP, TAIL
from tuner.runtime.train.solved import SolvedFile
from tuner.runtime.train.tail import TailTraining

#: How many of the user's samples a tried round learns from.
TRIED_SAMPLES = 400


def refuse_untrainable(tail: nn.Module, state: Mapping[str, Any], plan: TrialPlan) -> None:
    """Refuse, before anything is written, a tail that trains weights which the model has not by the same names."""
    strange = [name for name in trained_part(tail).state_dict() if name not in state]
    changing = next((edit.kind for edit in plan.shape if not edit.traits.trains_again), None)
    if changing is not None or strange:
        why = f"the tail edit {changing}" if changing else f"a weight {strange[0]} that the model does not have"
        raise BundleError(
            f"--trainable can only write the model's own tail, but this tail has {why}: export without --trainable"
        )


def write_trainable(
    opened: OpenTask, plan: TrialPlan, tail: nn.Module, mixed: Sequence[Selection], own_bytes: int, folder: Path
) -> dict[str, Any]:
    """Write a traced step and the tail's inference next to a model that was exported for it; check the step.

    The step trains what the plan's edits leave to train, and by the adapters that they make. It minimises the task's
    loss alone: a device has neither the plugins' terms nor the given model as a teacher, and no edit is called.

    Args:
        opened: The task, its model, and what plugins add.
        plan: What was trained.
        tail: As it was trained, `mixed` being the global samples that it was trained on.
        mixed: Likewise.
        own_bytes: Most bytes of features of the user's own samples; 0 for none: of these, nothing is written then but
            the range of each feature channel.
        folder: The bundle's.

    Returns:
        The section of ``bundle.json`` about it.

    Raises:
        BundleError: The step cannot be written, or trains other than PyTorch.
    """
    (folder / Section.TRAIN).mkdir(mode=0o700)
    task, names = opened.task, tuple(trained_part(tail).state_dict())
    session = Session(folder / MODEL, plan.runtime.threads)
    features = Features(task, plan, session.features if plan.split else lambda pixels: pixels)
    codec, outputs, recipe = features.codec(), len(task.labels), plan.recipe
    loss = torch_loss(task.targets.smoothed(recipe.label_smoothing))
    shape, check = codec.shape, features.check(codec.shape)
    seen = drawn(whole_partition(task, "local.train"), recipe.batch_size)
    inputs = features.of(seen)
    left_out = [term.kind for term in plan.loss] + [change.kind for change in plan.data.batches]
    try:
        write(trace_inference(tail, input_shape=shape, outputs=outputs, batch_size=BATCH), folder / TAIL)
        given = trained_part(tail)
        if plan.shape:
            read = TailInputs(lambda rows: torch.from_numpy(inputs[rows]), seen.labels())
            edits = edited(opened.model, plan, opened.extensions, probe_of(read, loss, seed=0))
            tail = trained_part(edits.tail)
            given = tail if edits.given is None else edits.given
            left_out += edits.evolving
        step = trace(tail, recipe, loss=loss, input_shape=shape, outputs=outputs, batch_size=recipe.batch_size)
        write(named_as(given, tail, step), folder / STEP)
        adapted = write_adapters(given, folder)
    except StepError as error:
        raise unwritable(error) from error
    labels, threads = random_labels(recipe, outputs, task.targets), plan.runtime.threads
    difference = compare_training(tail, recipe, folder / STEP, inputs, labels, loss.mean, threads, given)
    adapters = Adapters(folder / ADAPTERS, folder / MERGE) if adapted else None
    training = TailTraining(folder / STEP, adapters, threads, seed=0)
    local = features.replay([drawn(whole_partition(task, "local.train"), TRIED_SAMPLES)], codec)
    exported = read_tensors(folder / WEIGHTS, names)
    drop = tried_round(task, plan, training, exported, (local, check), folder)
    replay = sufficient_replay(features, task, mixed, codec, drop)
    own = features.own(codec, own_bytes)
    if own_bytes:
        own.save(folder / OWN)
    return features.save(
        folder,
        replay,
        check,
        TrainKind.ADAPTERS if adapted else TrainKind.TAIL,
        largest_loss_difference=difference,
        weights=names,
        cut=plan.split,
        own_samples=len(own),
        own_bytes=own_bytes,
        left_out=tuple(left_out),
    )


def write_solvable(
    opened: OpenTask,
    plan: TrialPlan,
    given: Mapping[str, torch.Tensor],
    mixed: Sequence[Selection],
    solved: UnionSettings | str,
    folder: Path,
) -> dict[str, Any]:
    """Write what a head is solved for again from; return the section of ``bundle.json`` about it.

    That is the head as it was given, the user's samples as codes of their features, and what the trial solved with, or
    the name of the plugin that solves: a sample that is forgotten takes its codes with it.

    Raises:
        BundleError: A device cannot solve this tail.
    """
    shape, state = plan.model.blocks[plan.split].in_shape, dict(given)
    if len(shape) != 1 or len(state) != 2 or not plan.split:  # noqa: PLR2004 - weight and bias
        raise BundleError(
            "a device solves for a linear layer with a bias behind frozen blocks that give vectors, and this head is "
            "another one: export without --trainable"
        )
    (folder / Section.TRAIN).mkdir(mode=0o700)
    features = Features(opened.task, plan, Session(folder / MODEL, plan.runtime.threads).features)
    replay = features.replay(mixed, features.codec())
    local = [one for one in training_selections(opened.task, plan) if one.domain == "local"]
    own = np.concatenate([features.of(one) for one in local])
    solver, union = (solved, UnionSettings()) if isinstance(solved, str) else (None, solved)
    step = step_of(np.concatenate([own, replay.read(np.arange(len(replay)))]))
    weight, bias = (value.double().numpy() for value in state.values())
    labels = np.concatenate([one.labels() for one in local])
    SolvedFile(LinearHead(weight, bias), coded(own, step), labels, step, union).save(folder)
    check = features.check(replay.codec.shape)
    about = {"weights": tuple(state), "cut": plan.split, "own_samples": len(labels), "solver": solver}
    return features.save(folder, replay, check, TrainKind.SUMS if solver else TrainKind.CLOSED_FORM, **about)
