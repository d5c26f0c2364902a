"""A trial of a tail: it is trained, scored and written."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from tuner.arrays import Floats, Labels
from tuner.backends.base import Trial
from tuner.backends.lowering import LoweringError
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.int8 import prediction_costs
from tuner.backends.torch.features.selection import Selection, are_apart
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.checkpoint import Checkpoint, restore
from tuner.backends.torch.trial.choice import chosen_selections, mixed_metadata
from tuner.backends.torch.trial.edits.completed import complete, training_samples
from tuner.backends.torch.trial.edits.edited import edited, probe_of
from tuner.backends.torch.trial.edits.evolving import room
from tuner.backends.torch.trial.edits.solve_again import ALONE, solve_again
from tuner.backends.torch.trial.edits.solved import SolvedSteps
from tuner.backends.torch.trial.inputs import TailInputs, augmenting, training_inputs, validation_inputs
from tuner.backends.torch.trial.opened import OpenTask, TailTraining
from tuner.backends.torch.trial.scoring import SCORE_BATCH, Scores, logits, require_finite, score, sizes
from tuner.errors import DivergedError, TrainingError, first_line
from tuner.files import private_file, remove_parts
from tuner.machine.awake import CLOCK
from tuner.machine.process_memory import PeakMeter
from tuner.results.records.trial import HEAD_SOLVED, Outcome
from tuner.training.emphasis import epoch_order, sample_weights
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import BetweenEpochs, TrainingLog, train_epochs


@contextmanager
def frozen(module: nn.Module, changed: str, cause: str) -> Iterator[None]:
    """Refuse a training that changes weights or buffers of a module; the message says what changed, and why it may."""
    before = state_hash(module)
    yield
    if state_hash(module) != before:
        raise TrainingError(f"{changed}, so the trial does not count: check whether {cause}")


class TailProcedure:
    """A trial of a tail; see `tuner.backends.base.Session.train`.

    The time to choose samples, and that a teacher, the edits and the engine take to get ready, is training time.

    Attributes:
        training: The samples of an epoch.
        trained: What trained, in evaluation mode.
        notes: For the trial's record.
        continued: Number of epochs that an interrupted process had trained before.
        scores: What it scored.
    """

    training: list[Selection]
    trained: nn.Module
    scores: Scores

    def __init__(self, trial: Trial, opened: OpenTask) -> None:
        self.trial, self.opened, self.plan = trial, opened, trial.plan
        self.access = opened.access(trial.plan, trial.store, trial.report)
        self.notes: tuple[str, ...] = ()
        self.continued = 0
        self.left_out: tuple[Floats, Labels] | None = None

    def carry_out(self) -> Outcome:
        """Fill the store, choose samples, train, score, and write the weights."""
        trial, plan = self.trial, self.plan
        torch.set_num_threads(plan.runtime.threads)
        torch.manual_seed(trial.seed)
        if plan.cached:
            fill(self.access, [plan])  # nothing to do in a study, which fills ahead
        is_int8 = plan.runtime.precision == "int8" and not plan.data.refit
        self.int8 = prediction_costs(self.opened.task, self.opened.model, plan.split) if is_int8 else None
        self.meter = PeakMeter()
        trial.report({"resting_bytes": self.meter.resting})
        started = CLOCK.now()
        self.training = chosen_selections(self.access, plan, self.opened.extensions)
        self.choosing = CLOCK.now() - started if plan.data.edit is not None else 0.0
        log = self.train()
        self.scores = scores = self.score()
        scores.values["train_seconds"] = log.seconds
        self.write(mixed_metadata(plan, self.training))
        scores.values["peak_bytes"] = float(self.meter.peak_bytes())
        return Outcome(scores.values, log.entries, log.ended, self.notes, scores.classes, tuple(scores.right))

    def train(self) -> TrainingLog:
        """Train the tail, and solve for its head again where the plan says so."""
        changed = "the frozen prefix changed while the tail was trained"
        cause = "the model, or a plugin's edit of the tail, changes weights or buffers of the frozen blocks"
        with frozen(self.opened.model.prefix(self.plan.split), changed, cause):
            return self._train()

    def score(self) -> Scores:
        """Return the scores on the validation samples, and what a prediction and the bundle cost."""
        task, tail, scores = self.opened.task, self.trained, Scores()
        if self.again.solved is not None:
            scores.values[HEAD_SOLVED] = float(self.again.solved)
        for domain, inputs in self.validation.items():
            known = (self.again.outputs or {}).get(domain)
            outputs = logits(tail, inputs) if known is None else known
            require_finite("the tail", outputs)
            scores.add(task, domain, outputs, inputs.labels)
            if domain == "local" and self.left_out is not None and are_apart(self.training[0]):
                scores.add_left_out(task, outputs, inputs.labels, *self.left_out)
        if self.int8 is not None:  # of blocks in float32, the study knows the time of a prediction
            scores.values.update(self.int8.values)
        int8_bytes = None if self.int8 is None else self.int8.int8_bytes
        scores.values.update(sizes(self.opened.model, self.plan.split, tail, self._typical(), int8_bytes))
        return scores

    def write(self, metadata: Mapping[str, str] | None) -> None:
        """Write the tail's weights, whole or not at all."""
        path = self.trial.weights
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.contiguous() for name, value in self.trained.state_dict().items()}
        remove_parts(path)
        with private_file(path) as part:
            try:
                save_file(tensors, part, {**self.metadata, **(metadata or {})} or None)
            except RuntimeError as error:  # of a weight with two names
                kinds = ", ".join(edit.kind for edit in self.plan.shape)
                raise LoweringError(kinds, f"its weights cannot be saved: {first_line(error)}") from error
        self.checkpoint.clear()

    def _train(self) -> TrainingLog:
        trial, plan, task = self.trial, self.plan, self.opened.task
        changes = np.random.default_rng((trial.seed, 1))
        train = training_inputs(self.access, plan, self.training, augmenting(self.access.task, plan, changes))
        self.validation = validation_inputs(self.access, plan)
        started = CLOCK.now()
        local = int(train.is_local.sum())
        weights = sample_weights(plan.data, local, len(train.labels) - local)
        train = replace(self._with_teacher(train), weights=weights)
        is_fixed = not (plan.shape or plan.recipe.solve_again)
        fixed = train if is_fixed else training_inputs(self.access, plan, self.training)  # without random changes
        loss = torch_loss(task.targets.smoothed(plan.recipe.label_smoothing))
        probe = probe_of(fixed, loss, trial.seed)
        edits = edited(self.opened.model, plan, self.opened.extensions, probe, trial.seed)
        tail, checkpoint = edits.tail, Checkpoint(trial)
        saved = checkpoint.read()
        if saved is not None:
            tail.load_state_dict(saved.tail)
        training = TailTraining(task, plan, tail, train, trial.seed, self.opened.extensions)
        steps = (SolvedSteps if plan.traits.solves else self.opened.steps)(training)
        order = epoch_order(plan.data, train.labels)
        guarded = not plan.traits.changes_shapes and not plan.traits.solves
        recipe = replace(plan.recipe, epochs=1, patience=0) if plan.traits.solves else plan.recipe
        loop = EpochLoop(steps, recipe, len(train.labels), trial.seed, order=order, guarded=guarded)
        start = restore(loop, changes, saved, self.choosing + CLOCK.now() - started)
        between = BetweenEpochs(
            lambda: score(task, tail, self.validation["local"]),
            lambda: room(plan, self.meter),
            lambda entries, seconds: checkpoint.between(tail, loop, changes, entries, seconds),
        )
        log = train_epochs(loop, trial.report, between, start)
        checkpoint.end(tail, loop, changes, log)
        samples = training_samples(task.targets, tail, plan, fixed)
        notes = (*steps.notes, *steps.finish(samples))
        for name, value in tail.state_dict().items():  # the last step, or half an epoch, may have broken it unseen
            if value.is_floating_point() and not bool(value.isfinite().all()):
                rate = plan.recipe.learning_rate
                raise DivergedError(f"{name} is no longer finite: lower recipe.learning_rate, which is {rate:g}")
        tail, self.again, started = edits.finish(steps.example), ALONE, CLOCK.now()
        if plan.recipe.solve_again:
            judges = {} if plan.data.refit else self.validation
            self.again = solve_again(task, tail, self.opened.model.trusted_rows, fixed, judges)
            if plan.data.refit and self.again.solved is None:
                raise TrainingError("; ".join(self.again.notes))
        if plan.traits.keeps_given:
            notes = (*self.again.notes, *complete(training_samples(task.targets, tail, plan, fixed), tail, plan))
            self.again = replace(self.again, outputs=None, notes=notes)
        self.trained, self.example, self.checkpoint = tail.eval(), steps.example, checkpoint
        self.metadata = steps.metadata
        self.left_out = None if plan.data.fold else steps.left_out
        self.notes, self.continued = (*notes, *self.again.notes), len(start.entries)
        return replace(log, seconds=log.seconds + CLOCK.now() - started)

    def _typical(self) -> torch.Tensor:
        """Return inputs whose mean cost is that of a prediction: one, or some where not all take the same way."""
        if not self.plan.traits.keeps_given:
            return self.example
        local = self.validation["local"]
        return spatial(local.read(np.arange(min(SCORE_BATCH, len(local.labels)))))

    def _with_teacher(self, train: TailInputs) -> TailInputs:
        """Return training inputs with the given model's logits on unchanged samples, where a loss term reads them."""
        if not self.plan.has_teacher:
            return train
        given = self.access.loaded.tail(self.plan.split)
        return replace(train, teacher=logits(given, training_inputs(self.access, self.plan, self.training)))
