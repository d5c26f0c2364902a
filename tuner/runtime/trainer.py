"""Train a bundle again, on the device that it runs on, with the base package alone."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file, save

from tuner.backends.memory import return_freed
from tuner.backends.scores import accuracy, macro_auc
from tuner.errors import BundleError
from tuner.plan import TrialPlan
from tuner.runtime.bundle import MODEL, PLAN, WEIGHTS, Bundle, successor
from tuner.runtime.onnxfile import with_weights
from tuner.runtime.reading import Array, Label, Sample, inputs, label_rows
from tuner.runtime.records import Records
from tuner.runtime.session import Session
from tuner.runtime.step import Rows, StepSession, Watch, train
from tuner.runtime.tail import Tail
from tuner.store.augment import augment
from tuner.store.ops import acting
from tuner.task import normalise

TRAIN_FORMAT = 1
STEP, TAIL = "train/step.onnx", "train/tail.onnx"
REPLAY, CHECK = "train/replay.safetensors", "train/check.safetensors"
LOSSES = ("single-label", "multi-label")
TOLERANCE = 1e-3  # of logits, between the model file and the weights it was given
_BATCH = 2  # samples that run through the frozen blocks at once: more take memory, and no less time


class Trainer:
    """A bundle that learns, in little memory: from here on the process gives what it frees back to the system at once.

    New samples go through the frozen blocks once and are kept as codes of the plan's width; the tail trains on them and
    on the global samples that the bundle brings along, by the plan's recipe. Nothing is written until `save`.

    Args:
        bundle: The bundle or its folder, exported with ``--trainable``.
        threads: Within an operator; all the process may use where it is not given.
        seed: Of the order of samples, of random changes and of dropouts.

    Attributes:
        bundle: What training starts from.
        plan: How it was made; its recipe trains it again.
        before: Accuracy on the bundle's check samples before anything is trained; None where it brings none.

    Raises:
        BundleError: The bundle cannot be used, or was not exported to be trained.
    """

    def __init__(self, bundle: Bundle | str | Path, threads: int | None = None, seed: int = 0) -> None:
        return_freed()
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        if self.bundle.exits:
            raise BundleError(f"{self.bundle.folder} trains its exits: use tuner.runtime.ExitsTrainer")
        self._about = trainable(self.bundle, TRAIN_FORMAT)
        folder = self.bundle.folder
        self.plan = TrialPlan.from_toml((folder / PLAN).read_text(encoding="utf-8"))
        self._threads, self._seed = threads or len(os.sched_getaffinity(0)), seed
        self._replay, self._check = Records.load(folder / REPLAY), Records.load(folder / CHECK)
        self._local = self._replay.none()
        with safe_open(folder / WEIGHTS, framework="numpy") as file:
            self._weights: Mapping[str, Array] = {name: file.get_tensor(name) for name in self._about["weights"]}
        self._tail = Tail(folder / TAIL, self._threads)
        self.before = self.global_accuracy()
        self._losses: tuple[float, ...] = ()

    def __len__(self) -> int:
        """How many new samples there are to train on."""
        return len(self._local)

    def add(self, samples: Sequence[Sample], labels: Sequence[Label]) -> None:
        """Take new samples to train on.

        Args:
            samples: Files as `Personaliser.predict_file` takes them, or arrays of the model's input shape; of signals,
                recordings, every window of which is a sample.
            labels: Of each, among the bundle's.

        Raises:
            TunerError: A file cannot be read, a shape is another one, or a label is not the bundle's.
        """
        for features, rows in self._batches(samples, labels):
            self._keep(features, rows)

    def add_features(self, features: npt.NDArray[np.float32], labels: Sequence[Label]) -> None:
        """Take new samples as what the frozen blocks made of them.

        Args:
            features: float32 [n, ...], as `features` returns them.
            labels: Of each, among the bundle's.

        Raises:
            BundleError: Features have another shape, or a label is not the bundle's.
        """
        shape = self._replay.codec.shape
        if features.shape != (len(labels), *shape):
            raise BundleError(
                f"{len(labels)} labels want features [{len(labels)}, {', '.join(map(str, shape))}], "
                f"but these are {list(features.shape)}"
            )
        self._keep(features, label_rows(labels, self.bundle))

    def features(self, samples: Sequence[Sample]) -> npt.NDArray[np.float32]:
        """Return what the frozen blocks make of samples, float32 [n, ...].

        Raises:
            TunerError: A file cannot be read, or a shape is another one.
        """
        first = [self.bundle.labels[0]] if self.bundle.loss == "multi-label" else self.bundle.labels[0]
        parts = [features for features, _ in self._batches(samples, [first] * len(samples))]
        return np.concatenate([np.empty((0, *self._replay.codec.shape), np.float32), *parts])

    def train(
        self, epochs: int | None = None, batch_size: int | None = None, watch: Watch = lambda _step, _steps: False
    ) -> tuple[float, ...]:
        """Train on the new samples and the bundle's global ones; the weights are then what `save` writes.

        Args:
            epochs: As the plan says where it is not given.
            batch_size: At most the plan's, which the step was written for.
            watch: Told of every step; returns whether to stop there.

        Returns:
            The mean loss of each epoch.

        Raises:
            TunerError: There are no new samples, the batches are too large, or the loss is no longer a number.
        """
        if not len(self):
            raise BundleError("there is nothing new to train on: add samples and their labels first")
        said = self.plan.recipe
        recipe = replace(said, epochs=epochs or said.epochs, batch_size=batch_size or said.batch_size)
        session = StepSession(self.bundle.folder / STEP, self._weights, self._threads, self._seed)
        losses = tuple(loss for loss, _ in train(session, self._mixed(), recipe, self._seed, watch))
        weights = session.weights()
        if not all(np.isfinite(value).all() for value in weights.values()):
            raise BundleError(f"weights are no longer finite: lower recipe.learning_rate, {said.learning_rate:g}")
        self._weights, self._losses = weights, self._losses + losses
        return losses

    def accuracy(self, samples: Sequence[Sample], labels: Sequence[Label]) -> float:
        """Return how many of some samples are predicted right by the weights of the moment; of several labels, the AUC.

        Raises:
            TunerError: As `add`.
        """
        features, rows = zip(*self._batches(samples, labels), strict=True)
        return self._scored([np.concatenate(features)], np.concatenate(rows))

    def global_accuracy(self) -> float | None:
        """Return the accuracy on the bundle's check samples: what was not forgotten. None where it brings none."""
        if not len(self._check):
            return None
        size = self._tail.batch_size
        parts = [np.arange(begin, min(begin + size, len(self._check))) for begin in range(0, len(self._check), size)]
        return self._scored([self._check.read(rows) for rows in parts], self._check.labels)

    def logits(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return what the weights of the moment say, float32 [n, labels], of what `features` returns."""
        return self._tail.logits(features, self._weights)

    def save(self, out: str | Path) -> Path:
        """Write a bundle of the weights of the moment that names its parent, and can be trained again.

        Args:
            out: A folder that does not exist yet, or is empty.

        Raises:
            BundleError: The folder cannot be made, or the written model computes something else than what was trained.
        """
        folder, out = self.bundle.folder, Path(out)
        weights = dict(self._weights)
        named = {f"tail.{name}": value for name, value in weights.items() if value.ndim}  # counters steer nothing
        replaced = {
            MODEL: lambda: with_weights((folder / MODEL).read_bytes(), named),
            WEIGHTS: lambda: save({**load_file(folder / WEIGHTS), **weights}),
        }
        after = {"global_accuracy": self.global_accuracy(), "losses": self._losses, "samples": len(self)}
        scores = {"before": {"global_accuracy": self.before}, "after": after}
        with successor(self.bundle, out, replaced, scores) as part:
            self._compare(part / MODEL)
        return out

    def _compare(self, model: Path) -> None:
        """Check that a written model gives the logits of the trained tail."""
        session = Session(model, self._threads)
        sample = np.random.default_rng(0).standard_normal((2, *self.bundle.input_shape), np.float32)
        features = session.features(sample) if self._about["split"] else sample
        worst = float(np.abs(session.logits(sample) - self.logits(features)).max())
        if not worst <= TOLERANCE:
            raise BundleError(
                f"the written model's logits differ by {worst:.2g} from the trained tail's, more than {TOLERANCE:g}"
            )

    def _batches(
        self, samples: Sequence[Sample], labels: Sequence[Label]
    ) -> Iterator[tuple[npt.NDArray[np.float32], Array]]:
        """Yield features and rows of labels, a few samples at a time."""
        if len(samples) != len(labels) or not len(samples):
            raise BundleError(f"each sample has a label, but there are {len(samples)} samples and {len(labels)} labels")
        rows, given = label_rows(labels, self.bundle), inputs(samples, self.bundle)
        session = Session(self.bundle.folder / MODEL, self._threads) if self._about["split"] else None
        while batch := list(islice(given, _BATCH)):
            pixels = normalise(np.stack([array for _, array in batch]), self.bundle.input)
            features = pixels if session is None else session.features(pixels)
            yield features, rows[[number for number, _ in batch]]

    def _keep(self, features: npt.NDArray[np.float32], rows: Array) -> None:
        self._local = self._local.more(self._local.codec.encode(features), rows)

    def _mixed(self) -> Rows:
        """Return the new samples and the bundle's global ones, changed at random as the plan says."""
        records = self._local.more(self._replay.codes, self._replay.labels)
        strength, ops = self.plan.cache.augment, acting(self.plan.task.augment, cached=self.plan.split > 0)
        if not strength:
            return Rows(records.read, records.labels)
        generator = np.random.default_rng((self._seed, 1))
        return Rows(lambda rows: augment(records.read(rows), generator, ops, strength), records.labels)

    def _scored(self, features: Sequence[npt.NDArray[np.float32]], rows: Array) -> float:
        logits = np.concatenate([self.logits(one) for one in features])
        return macro_auc(logits, rows) if self.bundle.loss == "multi-label" else accuracy(logits, rows)


def trainable(bundle: Bundle, wanted: int) -> Mapping[str, Any]:
    """Return what a bundle says of its training, which is to have a format.

    Raises:
        BundleError: It was not exported to be trained, or for another version, or with another loss.
    """
    about: Mapping[str, Any] | None = bundle.info.get("train")
    if about is None:
        raise BundleError(f"{bundle.folder} cannot be trained: export it with `tuner export RUN OUT --trainable`")
    if about["format"] != wanted:
        raise BundleError(
            f"{bundle.folder} has training format {about['format']!r}, this version reads {wanted}: update tuner"
        )
    if bundle.loss not in LOSSES:
        raise BundleError(f"a bundle trains with the loss {' or '.join(LOSSES)}, not {bundle.loss!r}: update tuner")
    return about
