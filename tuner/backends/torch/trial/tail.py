"""A trial of a tail: it is trained, scored and written."""

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from safetensors.torch import save_file
from torch import nn

from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.checkpoint import Checkpoint, restore
from tuner.backends.torch.trial.edits.edited import edited, probe_of
from tuner.backends.torch.trial.edits.evolving import room
from tuner.backends.torch.trial.edits.solve_again import ALONE, solve_again
from tuner.backends.torch.trial.edits.solved import SolvedSteps
from tuner.backends.torch.trial.inputs import TailInputs, augmenting, training_inputs, validation_inputs
from tuner.backends.torch.trial.procedure import Procedure, frozen
from tuner.backends.torch.trial.scoring import logits, score, scores, sizes
from tuner.backends.torch.trial.steps import TrialSteps
from tuner.errors import DivergedError
from tuner.files import private_file, remove_parts
from tuner.plan.parts import RecipePlan
from tuner.results.records.counts import ClassCounts
from tuner.training.emphasis import epoch_order, sample_weights
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import BetweenEpochs, TrainingLog, train_epochs


class TailProcedure(Procedure):
    """Trains the tail as planned.

    The time to choose samples, and that a teacher, the edits and the engine take to get ready, is training time.
    """

    def train(self) -> TrainingLog:
        """Train the tail, and solve for its head again where the plan says so."""
        changed = "the frozen prefix changed while the tail was trained"
        cause = "the model, or a plugin's edit of the tail, changes weights or buffers of the frozen blocks"
        with frozen(self.opened.model.prefix(self.plan.split), changed, cause):
            return self._train()

    def score(self) -> tuple[dict[str, float], dict[str, ClassCounts]]:
        """Return the scores on the validation samples, and what a prediction and the bundle cost."""
        model, tail, cut = self.opened.model, self.trained, self.plan.split
        values, classes = scores(self.opened.task, tail, self.validation, self.again.outputs)
        if self.int8 is None:  # of blocks in float32, the study knows the time of a prediction
            return values | sizes(model, cut, tail, self.example), classes
        return values | self.int8.values | sizes(model, cut, tail, self.example, self.int8.int8_bytes), classes

    def write(self, metadata: Mapping[str, str] | None) -> None:
        """Write the tail's weights, whole or not at all."""
        path = self.trial.weights
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.contiguous() for name, value in self.trained.state_dict().items()}
        remove_parts(path)
        with private_file(path) as part:
            save_file(tensors, part, metadata)
        self.checkpoint.clear()

    def _train(self) -> TrainingLog:
        trial, plan, task = self.trial, self.plan, self.opened.task
        changes = np.random.default_rng((trial.seed, 1))
        train = training_inputs(self.access, plan, self.training, augmenting(self.access.task, plan, changes))
        self.validation = validation_inputs(self.access, plan)
        started = time.perf_counter()
        weights = sample_weights(plan.data, len(self.training[0]), sum(map(len, self.training[1:])))
        train = replace(self._with_teacher(train), weights=weights)
        is_fixed = not (plan.shape or plan.recipe.solve_again)
        fixed = train if is_fixed else training_inputs(self.access, plan, self.training)  # without random changes
        loss = torch_loss(task.targets.smoothed(plan.recipe.label_smoothing))
        probe = probe_of(fixed, loss, trial.seed)
        edits = edited(self.opened.model, plan, self.opened.extensions, probe, trial.seed)
        tail, checkpoint = edits.tail, Checkpoint.of(trial)
        saved = checkpoint.read()
        if saved is not None:
            tail.load_state_dict(saved.tail)
        steps = self._steps(tail, train)
        order = epoch_order(plan.data, train.labels)
        guarded = not plan.traits.changes_shapes and not plan.traits.solves
        loop = EpochLoop(steps, plan.recipe, len(train.labels), trial.seed, order=order, guarded=guarded)
        start = restore(loop, changes, saved, self.choosing + time.perf_counter() - started)
        between = BetweenEpochs(
            lambda: score(task, tail, self.validation["local"]),
            lambda: room(plan, self.meter),
            lambda entries, seconds: checkpoint.between(tail, loop, changes, entries, seconds),
        )
        log = train_epochs(loop, trial.report, between, start)
        checkpoint.end(tail, loop, changes, log)
        notes = (*steps.notes, *steps.finish())
        _refuse_broken(tail, plan.recipe)
        tail, self.again, started = edits.finish(steps.example), ALONE, time.perf_counter()
        if plan.recipe.solve_again:
            self.again = solve_again(task, tail, self.opened.model.trusted_rows, fixed, self.validation)
        self.trained, self.example, self.checkpoint = tail.eval(), steps.example, checkpoint
        self.notes, self.continued = (*notes, *self.again.notes), len(start.entries)
        return replace(log, seconds=log.seconds + time.perf_counter() - started)

    def _steps(self, tail: nn.Module, train: TailInputs) -> TrialSteps:
        """Return what runs the steps, or solves for the head."""
        opened = self.opened
        if self.plan.traits.solves:
            return SolvedSteps(opened.task, self.plan, tail, train)
        return opened.steps(opened.task, self.plan, tail, train, self.trial.seed, opened.extensions)

    def _with_teacher(self, train: TailInputs) -> TailInputs:
        """Return training inputs with the given model's logits, before anything trains, where a loss term reads them.

        They come from what the epochs read, without random changes.
        """
        if not self.plan.has_teacher:
            return train
        given = self.access.loaded.tail(self.plan.split)
        return replace(train, teacher=logits(given, training_inputs(self.access, self.plan, self.training)))


def _refuse_broken(tail: nn.Module, recipe: RecipePlan) -> None:
    """Refuse to score weights that are not numbers: the last step, or half an epoch, may have broken them unseen."""
    for name, value in tail.state_dict().items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise DivergedError(
                f"{name} is no longer finite: lower recipe.learning_rate, which is {recipe.learning_rate:g}"
            )
