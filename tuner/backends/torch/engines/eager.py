"""Training steps by PyTorch, operator by operator."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tuner.arrays import RowNumbers
from tuner.backends.lowering import Training, TrainingSamples
from tuner.backends.torch.model.graph.kinds import NORMS
from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.step.batches import changed_batch
from tuner.backends.torch.step.losses import ExtendedLoss
from tuner.backends.torch.step.optimiser import clip_gradients, optimiser, set_rate, takes_closure, update
from tuner.backends.torch.threads import ThreadChoice
from tuner.backends.torch.trial.edits.evolving import begin_evolving, call, evolving
from tuner.backends.torch.trial.opened import TailTraining, TrialSteps
from tuner.training.schedule import batches_of

#: Training samples on which an evolving tail compares losses.
PROBE = 128
#: What is in memory of a batch at once: what the tail reads, labels, row numbers.
Part = tuple[torch.Tensor, torch.Tensor, RowNumbers]


class EagerSteps(TrialSteps):
    """Trains a tail by autograd and an optimiser of PyTorch, in parts where the recipe cuts batches.

    Args:
        training: What trains; the tail is laid out channels last from here on.
    """

    def __init__(self, training: TailTraining) -> None:
        tail, recipe, samples = training.tail, training.plan.recipe, len(training.inputs.labels)
        self._tail, self._recipe, self._inputs = channels_last(tail), recipe, training.inputs
        self.threads, loss = ThreadChoice(training.plan.runtime.threads), training.loss
        self._extended = loss if isinstance(loss, ExtendedLoss) else None
        self._loss = loss.own if isinstance(loss, ExtendedLoss) else loss
        trained = [value for value in tail.parameters() if value.requires_grad]
        self._optimiser = optimiser(trained, recipe, training.extensions)
        self._is_added = recipe.optimiser in training.extensions.optimisers
        self._changes, self._functions = training.plan.data.batches, training.extensions.batches
        self._kind = training.task.targets, len(training.task.labels)
        self._probe = np.sort(np.random.default_rng((training.seed, 2)).permutation(samples)[:PROBE])
        self.example = spatial(self._inputs.read(self._probe[:1]))
        self.evolving = evolving(tail)
        self._tail_norms_train = not recipe.freeze_bn or any(module.fresh_norms for module in self.evolving)
        self.norms_train = self._tail_norms_train
        steps = len(batches_of(np.arange(samples), recipe.batch_size))
        begin_evolving(tail, Training(self._optimiser, self.example, self._probe_loss, steps, training.seed, recipe))
        self._follow_changes()

    def begin_epoch(self) -> None:
        """Put the tail in training mode, its norms as the recipe says."""
        self._tail.train()
        if not self._tail_norms_train:
            for module in self._tail.modules():
                if isinstance(module, NORMS):
                    module.eval()

    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on one batch; return its mean loss."""
        with self.threads:
            set_rate(self._optimiser, rate)
            parts: Iterable[Part] = map(self._read, batches_of(rows, self._recipe.part_size))
            if not self._is_added:
                loss = self._gradients(parts, rows)
                self._optimiser.step()
            else:
                if takes_closure(self._optimiser):  # which may ask for the gradients of the same batch again
                    parts = list(parts)
                loss = update(self._optimiser, self._recipe.optimiser, lambda: self._gradients(parts, rows))
            for module in self.evolving:
                call(module, "after_update")
            return loss

    def evolve(self, epoch: int, room: int | None) -> dict[str, float]:
        """Let the tail change; return its log and the seconds it took."""
        if not self.evolving:
            return {}
        started = time.perf_counter()
        entry = {
            name: value for module in self.evolving for name, value in call(module, "after_epoch", epoch, room).items()
        }
        self._follow_changes()
        return {**entry, "evolve_seconds": time.perf_counter() - started}

    def state(self) -> dict[str, Any] | None:
        """Return the state of the optimiser and of what evolves."""
        return {
            "optimiser": self._optimiser.state_dict(),
            "evolving": [call(module, "state") for module in self.evolving],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, on a tail that has its weights."""
        self._optimiser.load_state_dict(state["optimiser"])
        for module, own in zip(self.evolving, state["evolving"], strict=True):
            call(module, "restore", own)
        self._follow_changes()

    def finish(self, samples: TrainingSamples) -> tuple[str, ...]:
        """Let the tail become what is scored and written; return its notes."""
        with torch.no_grad():
            return tuple(note for module in self.evolving for note in call(module, "finish", samples))

    def _follow_changes(self) -> None:
        """Let the rate fall only after every module has changed for the last time."""
        self.constant_until = max((module.constant_until for module in self.evolving), default=0.0)

    def _read(self, rows: RowNumbers) -> Part:
        batch, is_local = (self._inputs.read(rows), self._inputs.labels_of(rows)), self._inputs.is_local[rows]
        inputs, labels = changed_batch(self._changes, self._functions, batch, is_local, self._kind)
        return spatial(inputs), labels, rows

    def _gradients(self, parts: Iterable[Part], batch: RowNumbers) -> float:
        """Compute what the optimiser moves by, from the parts of a batch; return the batch's mean loss."""
        self._optimiser.zero_grad(set_to_none=True)
        total = 0.0
        for features, labels, rows in parts:
            loss = self._part_loss(features, labels, rows) * self._inputs.share(rows, batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            total += float(loss.detach())
        for module in self.evolving:
            call(module, "before_update", total)
        clip_gradients((own for group in self._optimiser.param_groups for own in group["params"]), self._recipe)
        return total

    def _part_loss(self, features: torch.Tensor, labels: torch.Tensor, rows: RowNumbers) -> torch.Tensor:
        return self._tail_loss(self._tail(features), features, labels, rows)

    def _tail_loss(
        self, logits: torch.Tensor, features: torch.Tensor, labels: torch.Tensor, rows: RowNumbers
    ) -> torch.Tensor:
        """Return the mean loss of some rows: the task's, and what terms add to it."""
        weights = self._inputs.weights_of(rows)
        if self._inputs.weights is None:
            loss = self._loss.mean(logits, labels)
        else:
            loss = (self._loss.losses(logits, labels) * weights).sum() / weights.sum()
        if self._extended is None:
            return loss
        added = self._extended.added(logits, labels, features, self._inputs.teacher_logits(rows))
        return loss + (added * weights).sum() / weights.sum()

    def _probe_loss(self, tail: nn.Module) -> torch.Tensor:
        """Return a tail's mean loss on the probe, in evaluation mode; its modules' modes stay as they are."""
        training = [module for module in tail.modules() if module.training]
        tail.eval()
        labels = self._inputs.labels_of(self._probe)
        loss = self._loss.mean(tail(spatial(self._inputs.read(self._probe))), labels)
        for module in training:
            module.training = True
        return loss
