"""Train a bundle's tail again, on the device that it runs on, with the base package alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Flags, Floats, Labels
from tuner.augment.maps import augment
from tuner.augment.operations import active_operations
from tuner.bundle.format import MODEL, WEIGHTS, Bundle, successor
from tuner.bundle.info import TrainInfo
from tuner.bundle.onnxfile import with_weights
from tuner.bundle.scores import DeviceScores
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import Session
from tuner.ort.tail import Tail
from tuner.ort.training_step import TrainingRows
from tuner.process_memory import return_freed
from tuner.processors import usable_processors
from tuner.runtime.infer.inputs import Sample, inputs, label_rows
from tuner.runtime.train.adapters import Adapters
from tuner.runtime.train.answer import Answer, answers_to
from tuner.runtime.train.files import (
    ADAPTERS,
    ADAPTERS_FORMAT,
    CHECK,
    MERGE,
    REPLAY,
    STEP,
    TAIL,
    TAIL_FORMAT,
    plan_of,
    replay_of,
    train_info,
)
from tuner.runtime.train.mixed_rows import mixed_rows
from tuner.runtime.train.tail_training import TailTraining
from tuner.targets.base import Label
from tuner.task import normalise
from tuner.training.epoch import Watch
from tuner.training.schedule import batches_of

SCORED = 32  # check samples that are decoded at once
_BATCH = 2  # samples that run through the frozen blocks at once: more take memory, and no less time


class Trainer:
    """A bundle that learns, in little memory: from here on the process gives what it frees back to the system at once.

    New samples go through the frozen blocks once and are kept as codes of the plan's width; the tail trains on them and
    on the global samples that the bundle brings along, by the plan's recipe. Nothing is written until `save`.

    Args:
        bundle: The bundle or its folder, exported with ``--trainable``.
        threads: Threads within an operator; all that the process may use where it is not given.
        seed: Seed of the order of samples, of random changes and of dropouts.

    Attributes:
        bundle: What training starts from.
        plan: Plan it was made by; its recipe trains it again.
        before: Accuracy on the bundle's check samples before anything is trained; None where it brings none.
        right_before: Whether the bundle answers each of these right, bool [n]; likewise.

    Raises:
        BundleError: The bundle cannot be used, or was not exported to be trained.
    """

    _formats: ClassVar[tuple[int, ...]] = (TAIL_FORMAT, ADAPTERS_FORMAT)

    def __init__(self, bundle: Bundle | str | Path, threads: int | None = None, seed: int = 0) -> None:
        return_freed()
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        if self.bundle.exits:
            raise BundleError(f"{self.bundle.folder} trains its exits: use tuner.runtime.ExitsTrainer")
        info = train_info(self.bundle, *self._formats)
        self.plan = plan_of(self.bundle)
        self._threads, self._seed = threads or usable_processors(), seed
        self._replay, self._check = replay_of(self.bundle, REPLAY), replay_of(self.bundle, CHECK)
        self._local = self._replay.emptied()
        self._is_frozen = bool(info.cut)  # whether there are frozen blocks before the tail
        self._weights: Mapping[str, Array] = read_tensors(self.bundle.file(WEIGHTS), info.weights)
        self._open(info)
        self.before, self.right_before = self._known()
        self._losses: tuple[float, ...] = ()

    def _open(self, info: TrainInfo) -> None:
        """Open what trains, and what gives the logits."""
        file = self.bundle.file
        adapters = Adapters(file(ADAPTERS), file(MERGE)) if info.format == ADAPTERS_FORMAT else None
        self._training = TailTraining(file(STEP), adapters, self._threads, self._seed)
        self._tail = Tail(file(TAIL), self._threads)

    def __len__(self) -> int:
        """Return the number of new samples to train on."""
        return len(self._local)

    def add(self, samples: Sequence[Sample], labels: Sequence[Label]) -> None:
        """Take new samples to train on.

        Args:
            samples: Files as `Personaliser.predict_file` takes them, or arrays of the model's input shape; of signals,
                recordings, every window of which is a sample.
            labels: Label of each, among the bundle's; or its targets, in their own unit.

        Raises:
            TunerError: A file cannot be read, a shape is another one, or a label is not the bundle's.
        """
        for features, rows in self._batches(samples, labels):
            self._keep(features, rows)

    def add_features(self, features: Floats, labels: Sequence[Label]) -> None:
        """Take new samples as the frozen blocks' features of them.

        Args:
            features: float32 [n, ...], as `features` returns them.
            labels: Label of each, among the bundle's.

        Raises:
            BundleError: Features have another shape, or a label is not the bundle's.
        """
        shape = self._replay.codec.shape
        if features.shape != (len(labels), *shape):
            raise BundleError(
                f"features of {len(labels)} labels must have shape [{len(labels)}, {', '.join(map(str, shape))}], "
                f"got {list(features.shape)}: give what `features` returns"
            )
        self._keep(features, label_rows(labels, self.bundle))

    def features(self, samples: Sequence[Sample]) -> Floats:
        """Return what the frozen blocks make of samples, float32 [n, ...].

        Raises:
            TunerError: A file cannot be read, or a shape is another one.
        """
        any_label = self.bundle.targets.any_label(self.bundle.labels)
        parts = [features for features, _ in self._batches(samples, [any_label] * len(samples))]
        return np.concatenate([np.empty((0, *self._replay.codec.shape), np.float32), *parts])

    def drop(self, rows: Sequence[int]) -> None:
        """Take new samples out again; a shallow copy of the trainer keeps them.

        Args:
            rows: Their places, in the order they were added in.
        """
        self._local = self._local.select(np.delete(np.arange(len(self)), rows))

    def train(
        self, epochs: int | None = None, batch_size: int | None = None, watch: Watch = lambda _step, _steps: False
    ) -> tuple[float, ...]:
        """Train on the new samples and the bundle's global ones; the weights are then what `save` writes.

        Args:
            epochs: Number of epochs; the plan's where it is not given.
            batch_size: Samples a step, at most the plan's, which the step was written for.
            watch: Called after every step; returns whether to stop there.

        Returns:
            The mean loss of each epoch.

        Raises:
            TunerError: There are no new samples, the batches are too large, or the loss is no longer a number.
        """
        if not len(self):
            raise BundleError("there is nothing new to train on: add samples and their labels first")
        own = self.plan.recipe
        recipe = replace(own, epochs=epochs or own.epochs, batch_size=batch_size or own.batch_size)
        self._weights, losses = self._training.train(self._weights, self._mixed(), recipe, watch)
        self._losses += losses
        return losses

    def accuracy(self, samples: Sequence[Sample], labels: Sequence[Label]) -> float:
        """Return how many of some samples the current weights predict right; of several labels the AUC, of targets R².

        Raises:
            TunerError: As `add`.
        """
        features, rows = zip(*self._batches(samples, labels), strict=True)
        return self._scored([np.concatenate(features)], np.concatenate(rows))

    def answers(self, samples: Sequence[Sample]) -> list[Answer]:
        """Return what the current weights answer to samples.

        Raises:
            TunerError: As `features`.
        """
        return answers_to(self.bundle, self.logits(self.features(samples)))

    def global_accuracy(self) -> float | None:
        """Return the accuracy on the bundle's check samples: what was not forgotten. None where it brings none."""
        return self._known()[0]

    def logits(self, features: Floats) -> Floats:
        """Return the logits of the current weights, float32 [n, labels], for what `features` returns."""
        return self._tail.logits(features, self._weights)

    def save(self, out: str | Path) -> Path:
        """Write a bundle of the current weights that names its parent, and can be trained again.

        Args:
            out: A folder that does not exist yet, or is empty.

        Raises:
            BundleError: The folder cannot be made, or the written model computes something else than what was trained.
        """
        folder, out = self.bundle.folder, Path(out)
        weights = dict(self._weights)
        of_tail = {f"tail.{name}": value for name, value in weights.items() if value.ndim}  # counters steer nothing
        replaced = {
            MODEL: lambda: with_weights((folder / MODEL).read_bytes(), of_tail),
            WEIGHTS: lambda: save({**read_tensors(folder / WEIGHTS, finite=False), **weights}),
            **self._replaced(),
        }
        scores = DeviceScores(self.before, self.global_accuracy(), self._losses, len(self))
        with successor(self.bundle, out, replaced, scores) as part:
            self._compare(part / MODEL)
        return out

    def _replaced(self) -> Mapping[str, Callable[[], bytes]]:
        """Return what else a new bundle has of its own: contents by file."""
        return {}

    def _compare(self, model: Path) -> None:
        """Check that a written model gives the logits of the trained tail."""
        session = Session(model, self._threads)
        sample = np.random.default_rng(0).standard_normal((2, *self.bundle.input_shape), np.float32)
        features = session.features(sample) if self._is_frozen else sample
        difference = largest_difference(session.logits(sample), self.logits(features))
        require_parity("the written model", "the trained tail", difference)

    def _batches(self, samples: Sequence[Sample], labels: Sequence[Label]) -> Iterator[tuple[Floats, Labels]]:
        """Yield features and rows of labels, a few samples at a time."""
        if len(samples) != len(labels) or not len(samples):
            raise BundleError(
                f"each sample must have one label, but there are {len(samples)} samples and {len(labels)} labels"
            )
        rows, arrays = label_rows(labels, self.bundle), inputs(samples, self.bundle)
        session = Session(self.bundle.folder / MODEL, self._threads) if self._is_frozen else None
        while batch := list(islice(arrays, _BATCH)):
            pixels = normalise(np.stack([array for _, array in batch]), self.bundle.input)
            features = pixels if session is None else session.features(pixels)
            yield features, rows[[number for number, _ in batch]]

    def _keep(self, features: Floats, rows: Labels) -> None:
        self._local = self._local.extended(self._local.codec.encode(features), rows)

    def _mixed(self) -> TrainingRows:
        """Return the new samples and the bundle's global ones, changed at random as the plan says."""
        rows, strength = mixed_rows(self.plan.data, self._local, self._replay), self.plan.cache.augment
        if not strength:
            return rows
        operations = active_operations(self.plan.task.augment, cached=self.plan.split > 0)
        generator = np.random.default_rng((self._seed, 1))
        return replace(rows, read=lambda numbers: augment(rows.read(numbers), generator, operations, strength))

    def _known(self) -> tuple[float | None, Flags | None]:
        """Return the accuracy on the check samples, and whether each is answered right; None where there are none."""
        check, kind = self._check, self.bundle.targets
        if not len(check):
            return None, None
        batches = batches_of(np.arange(len(check)), SCORED)
        logits = np.concatenate([self.logits(check.read(rows)) for rows in batches])
        return kind.score(logits, check.labels), kind.are_right(logits, check.labels)

    def _scored(self, features: Sequence[Floats], rows: Labels) -> float:
        logits = np.concatenate([self.logits(part) for part in features])
        return self.bundle.targets.score(logits, rows)
