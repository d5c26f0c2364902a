"""One trial: a tail is trained and scored."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from tuner.backends.base import Trial
from tuner.backends.torch.features.access import Access, frozen_hash
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.int8 import PredictionCosts, prediction_costs
from tuner.backends.torch.features.selection import Selection
from tuner.backends.torch.model.fingerprint import state_hash
from tuner.backends.torch.model.load import OpenModel
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.checkpoint import Checkpoint, restore
from tuner.backends.torch.trial.choice import chosen_selections, mixed_metadata
from tuner.backends.torch.trial.edits import edited, probe_of
from tuner.backends.torch.trial.evolving import room
from tuner.backends.torch.trial.inputs import TailInputs, TrialInputs, training_inputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.scoring import logits, score, scores, sizes
from tuner.backends.torch.trial.solve_again import ALONE, solve_again
from tuner.backends.torch.trial.solved import SolvedSteps
from tuner.backends.torch.trial.steps import TrialSteps
from tuner.errors import DivergedError, TrainingError
from tuner.files import private_file, remove_parts
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.process_memory import PeakMeter
from tuner.results.records import Outcome
from tuner.training.emphasis import epoch_order, sample_weights
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import BetweenEpochs, train_epochs


@dataclass(frozen=True, slots=True)
class TrainedTail:
    """The result of a tail's training.

    Attributes:
        outcome: Scores, log and notes.
        requested: Whether training ended on request.
        trained: What trained, in evaluation mode; None where nothing did.
        continued: Number of epochs that an interrupted process had trained before.
    """

    outcome: Outcome
    requested: bool
    trained: nn.Module | None = None
    continued: int = 0


def train_tail(trial: Trial, opened: OpenTask) -> TrainedTail:
    """Train the tail as planned, score it, write it; see `tuner.backends.base.Session.train`.

    The time to choose samples, and that a teacher, the edits and the engine take to get ready, is training time.
    """
    task, model, plan = opened.task, opened.model, trial.plan
    torch.set_num_threads(plan.runtime.threads)
    torch.manual_seed(trial.seed)
    access = opened.access(plan, trial.store, trial.report)
    if plan.cached:
        fill(access, [plan])  # nothing to do in a study, which fills ahead
    int8 = prediction_costs(task, model, plan.split) if plan.runtime.precision == "int8" else None
    meter = PeakMeter()
    trial.report({"resting_bytes": meter.resting})
    before = frozen_hash(model.chain, plan.split) if model.chain else ""
    changes = np.random.default_rng((trial.seed, 1))
    started = time.perf_counter()
    training = chosen_selections(access, plan, opened.extensions)
    choosing = time.perf_counter() - started if plan.data.edit is not None else 0.0
    inputs = TrialInputs.resolve(access, plan, training, changes)
    started = time.perf_counter()
    weights = sample_weights(plan.data, len(training[0]), sum(map(len, training[1:])))
    train = replace(_with_teacher(inputs.train, access, plan, training), weights=weights)
    is_fixed = not (plan.shape or plan.recipe.solve_again)
    fixed = train if is_fixed else training_inputs(access, plan, training)  # without random changes
    probe = probe_of(fixed, torch_loss(task.targets.smoothed(plan.recipe.label_smoothing)), trial.seed)
    edits = edited(model, plan, opened.extensions, probe, trial.seed)
    tail = edits.tail
    checkpoint = Checkpoint.of(trial)
    saved = checkpoint.read()
    if saved is not None:
        tail.load_state_dict(saved.tail)
    steps = _steps(opened, trial, tail, train)
    order = epoch_order(plan.data, train.labels)
    guarded = not plan.traits.changes_shapes and not plan.traits.solves
    loop = EpochLoop(steps, plan.recipe, len(train.labels), trial.seed, order=order, guarded=guarded)
    start = restore(loop, changes, saved, choosing + time.perf_counter() - started)
    between = BetweenEpochs(
        lambda: score(task, tail, inputs.validation["local"]),
        lambda: room(plan, meter),
        lambda entries, seconds: checkpoint.between(tail, loop, changes, entries, seconds),
    )
    log = train_epochs(loop, trial.report, between, start)
    checkpoint.end(tail, loop, changes, log)
    notes = (*steps.notes, *steps.finish())
    _refuse_broken(tail, plan.recipe)
    tail, started = edits.finish(steps.example), time.perf_counter()
    again = solve_again(task, tail, model.trusted_rows, fixed, inputs.validation) if plan.recipe.solve_again else ALONE
    seconds = log.seconds + time.perf_counter() - started
    values, classes = scores(task, tail, inputs.validation, again.outputs)
    values |= {"train_seconds": seconds, **_prediction(model, plan.split, tail, steps.example, int8)}
    if model.chain and state_hash(model.prefix(plan.split)) != before:
        raise TrainingError(
            "the frozen prefix changed while the tail was trained, so the trial does not count: check whether the "
            "model, or a plugin's edit of the tail, changes weights or buffers of the frozen blocks"
        )
    _write(tail, trial.weights, mixed_metadata(plan, training))
    checkpoint.clear()
    values["peak_bytes"] = float(meter.peak_bytes())
    outcome = Outcome(values, log.entries, log.ended, (*notes, *again.notes), classes)
    return TrainedTail(outcome, log.requested, tail.eval(), len(start.entries))


def _steps(opened: OpenTask, trial: Trial, tail: nn.Module, train: TailInputs) -> TrialSteps:
    """Return what runs the steps of a trial, or solves for its head."""
    if trial.plan.traits.solves:
        return SolvedSteps(opened.task, trial.plan, tail, train)
    return opened.steps(opened.task, trial.plan, tail, train, trial.seed, opened.extensions)


def _prediction(
    model: OpenModel, cut: int, tail: nn.Module, example: torch.Tensor, int8: PredictionCosts | None
) -> dict[str, float]:
    """Return what a prediction and the bundle cost; of blocks in float32, the study knows the time of a prediction."""
    if int8 is None:
        return sizes(model, cut, tail, example)
    return int8.values | sizes(model, cut, tail, example, int8.int8_bytes)


def _write(tail: nn.Module, path: Path, metadata: dict[str, str] | None) -> None:
    """Write a tail's weights, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.contiguous() for name, value in tail.state_dict().items()}
    remove_parts(path)
    with private_file(path) as part:
        save_file(tensors, part, metadata)


def _with_teacher(train: TailInputs, access: Access, plan: TrialPlan, training: Sequence[Selection]) -> TailInputs:
    """Return training inputs with the given model's logits, before anything trains, where a loss term reads them.

    They come from what the epochs read, without random changes.
    """
    if not plan.has_teacher:
        return train
    return replace(train, teacher=logits(access.loaded.tail(plan.split), training_inputs(access, plan, training)))


def _refuse_broken(tail: nn.Module, recipe: RecipePlan) -> None:
    """Refuse to score weights that are not numbers: the last step, or half an epoch, may have broken them unseen."""
    for name, value in tail.state_dict().items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise DivergedError(
                f"{name} is no longer finite: lower recipe.learning_rate, which is {recipe.learning_rate:g}"
            )
