"""Train a bundle's tail again, on the device that it runs on, with the base package alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Flags, Floats, RowNumbers
from tuner.augment.operations import active_operations
from tuner.bundle.format import MODEL, WEIGHTS
from tuner.bundle.info import TrainInfo, TrainKind
from tuner.bundle.replay import Replay, every_class_alike
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.tail import Tail
from tuner.ort.training_step import StepSession, TrainingRows, train
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.runtime.infer.personaliser import SampleOrFile
from tuner.runtime.train.adapters import Adapters
from tuner.runtime.train.base import Batch, Content, DeviceTrainer, finite, rewritten
from tuner.runtime.train.files import ADAPTERS, MERGE, MOST_OWN, OWN, STEP, TAIL, replay_of
from tuner.targets.strata import absent
from tuner.training.emphasis import epoch_order, sample_weights
from tuner.training.epoch import Watch
from tuner.training.schedule import batches_of


class Trainer(DeviceTrainer):
    """A bundle whose tail trains on new samples and on those that it brings along, by the plan's recipe.

    It brings global samples, and a part of the user's own that it was trained on before, so that neither is forgotten.
    Arguments, attributes and errors are those of `DeviceTrainer`.
    """

    _trainer = "Trainer"

    def _open(self, info: TrainInfo) -> None:
        file = self.bundle.file
        self._weights: Mapping[str, Array] = read_tensors(file(WEIGHTS), info.weights)
        adapters = Adapters(file(ADAPTERS), file(MERGE)) if info.kind == TrainKind.ADAPTERS else None
        self._training = TailTraining(file(STEP), adapters, self._threads, self._seed)
        self._tail = Tail(file(TAIL), self._threads)
        self._most = min(MOST_OWN, (info.own_bytes or 0) // self._new.codec.record_bytes)
        self._before = self._brought()
        self.earlier = len(self._before)

    def _brought(self) -> Replay:
        """Return the user's own samples that the bundle brings along."""
        if OWN not in self.bundle.info.files:
            return self._replay.select(np.arange(0))
        own, codec = replay_of(self.bundle, OWN), self._replay.codec
        if len(own.marks) != len(own) or own.codec.record_bytes != codec.record_bytes:
            raise BundleError(f"{self.bundle.folder / OWN} must have marks, and codes like the replay's: export again")
        return replace(own, codec=codec)

    def forget(self, samples: Sequence[SampleOrFile]) -> int:
        """Remove the copies of earlier samples that the bundle brings along; return how many of them it had.

        `save` writes a bundle without them. Its weights have learned from them all the same. Arguments and errors are
        those of `features`.
        """
        return sum(self._leave_out(batch.marks) for batch in self._batches(samples))

    def earlier_right(self) -> tuple[Flags, Flags, Flags] | None:
        """Return how the earlier samples are answered; see `DeviceTrainer.earlier_right`."""
        own, given = self._before, read_tensors(self.bundle.file(WEIGHTS), tuple(self._weights))
        batches = batches_of(np.arange(len(own)), self._at_once)

        def right(weights: Mapping[str, Array]) -> Flags:
            logits = np.concatenate([self._tail.logits(own.read(rows), weights) for rows in batches])
            return self.bundle.targets.are_right(logits, own.labels)

        return (right(given), right(self._weights), absent(own.labels, self._new.labels)) if len(own) else None

    def _keep(self, batch: Batch) -> None:
        super()._keep(batch)
        self._leave_out(batch.marks)  # a sample that comes again counts once, with its newer label

    def _leave_out(self, marks: RowNumbers) -> int:
        left_out = np.isin(self._before.marks, marks)
        self._before = self._before.select(np.flatnonzero(~left_out))
        return int(left_out.sum())

    def _kept(self) -> Replay:
        """Return the user's samples for the next bundle: of old ones and new ones, every class alike."""
        both = self._before.extended(self._new.codes, self._new.labels, self._new.marks)
        _, last = np.unique(both.marks[::-1], return_index=True)
        both = both.select(np.sort(len(both) - 1 - last))  # of a sample that came twice, the newer
        return both.select(every_class_alike(both.labels, both.marks, self._most))

    def _own_samples(self) -> int | None:
        return len(self._kept()) if OWN in self.bundle.info.files else super()._own_samples()

    def _fit(self, recipe: RecipePlan, watch: Watch) -> tuple[float, ...]:
        own = self._before.extended(self._new.codes, self._new.labels)
        rows, strength = mixed_rows(self.plan.data, own, self._replay), self.plan.cache.augment
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
            OWN: lambda: self._kept().content(),
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
