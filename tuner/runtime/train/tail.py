"""Train a bundle's tail again, on the device that it runs on, with the base package alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Floats
from tuner.augment.operations import active_operations
from tuner.bundle.format import MODEL, WEIGHTS
from tuner.bundle.info import TrainInfo, TrainKind
from tuner.bundle.replay import Replay
from tuner.bundle.tensors import read_tensors
from tuner.ort.tail import Tail
from tuner.ort.training_step import StepSession, TrainingRows, train
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.runtime.train.adapters import Adapters
from tuner.runtime.train.base import Content, DeviceTrainer, finite, rewritten
from tuner.runtime.train.files import ADAPTERS, MERGE, STEP, TAIL
from tuner.training.emphasis import epoch_order, sample_weights
from tuner.training.epoch import Watch


class Trainer(DeviceTrainer):
    """A bundle whose tail trains on new samples and on the global ones that it brings along, by the plan's recipe.

    Arguments, attributes and errors are those of `DeviceTrainer`.
    """

    _trainer = "Trainer"

    def _open(self, info: TrainInfo) -> None:
        file = self.bundle.file
        self._weights: Mapping[str, Array] = read_tensors(file(WEIGHTS), info.weights)
        adapters = Adapters(file(ADAPTERS), file(MERGE)) if info.kind == TrainKind.ADAPTERS else None
        self._training = TailTraining(file(STEP), adapters, self._threads, self._seed)
        self._tail = Tail(file(TAIL), self._threads)

    def _fit(self, recipe: RecipePlan, watch: Watch) -> tuple[float, ...]:
        rows, strength = mixed_rows(self.plan.data, self._new, self._replay), self.plan.cache.augment
        if strength:
            augment = self.bundle.kind.augment
            operations = active_operations(self.plan.task.augment, cached=self.plan.split > 0)
            operations -= {*self.plan.cache.left_out}
            generator, read = np.random.default_rng((self._seed, 1)), rows.read
            rows = replace(rows, read=lambda numbers: augment(read(numbers), generator, operations, strength))
        self._weights, losses = self._training.train(self._weights, rows, recipe, watch)
        return losses

    def _logits(self, features: Floats) -> Floats:
        return self._tail.logits(features, self._weights)[None]

    def _replaced(self) -> Mapping[str, Content]:
        given = self.bundle.folder / WEIGHTS
        return {
            MODEL: rewritten(self.bundle.folder / MODEL, "tail", self._weights),
            WEIGHTS: lambda: save({**read_tensors(given, finite=False), **self._weights}),
        }


@dataclass(frozen=True, slots=True)
class TailTraining:
    """What trains a tail by the file of its traced step: on the device, and where an export tries a round."""

    step: Path
    adapters: Adapters | None
    threads: int
    seed: int

    def train(
        self,
        given: Mapping[str, Array],
        rows: TrainingRows,
        recipe: RecipePlan,
        watch: Watch = lambda _step, _steps: False,
    ) -> tuple[dict[str, Array], tuple[float, ...]]:
        """Train given weights for a recipe's epochs; return the tail's by name, and the mean loss of each epoch.

        Raises:
            TunerError: Batches are larger than the step's, or numbers are no longer finite.
        """
        first = given if self.adapters is None else self.adapters.begin(given)
        session = StepSession(self.step, first, self.threads, self.seed)
        losses = tuple(result.loss for result in train(session, rows, recipe, self.seed, watch))
        weights = session.weights() if self.adapters is None else self.adapters.merged(session.weights())
        return finite(weights, recipe), losses


def mixed_rows(data: DataPlan, local: Replay, replay: Replay) -> TrainingRows:
    """Return local samples, followed by global ones, weighted and balanced as a plan says."""
    samples = local.extended(replay.codes, replay.labels)
    weights = sample_weights(data, len(local), len(replay))
    return TrainingRows(samples.read, samples.labels, weights=weights, order=epoch_order(data, samples.labels))
