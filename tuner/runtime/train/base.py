"""What every training on the device has in common: samples come in, weights are fitted, and a new bundle is written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from tuner.arrays import Array, Doubles, Flags, Floats, Labels, RowNumbers
from tuner.bundle.exit_policy import ExitPolicy
from tuner.bundle.format import UNKNOWN, Bundle, successor
from tuner.bundle.info import TrainInfo, UnknownInfo
from tuner.bundle.onnx_bytes import with_weights
from tuner.bundle.replay import Replay
from tuner.bundle.scores import DeviceScores
from tuner.errors import BundleError
from tuner.machine.control_group import usable_processors
from tuner.machine.process_memory import return_freed
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.plan.parts import RecipePlan
from tuner.runtime.infer.calibration import exits_taken
from tuner.runtime.infer.personaliser import SampleOrFile, inputs
from tuner.runtime.train.files import CHECK, REPLAY, plan_of, replay_of, train_info
from tuner.targets.base import Label
from tuner.task import normalise
from tuner.task.data.samples import content_id
from tuner.training.epoch import Watch
from tuner.training.schedule import batches_of

#: Samples that run through the frozen blocks at once: more take memory, and no less time.
AT_ONCE = 2
Content = Callable[[], bytes | bytearray]


class Answer(NamedTuple):
    """What a model answers to a sample.

    Attributes:
        label: Most probable label; or the values as text.
        exit: Index of the exit that it left at; 0 of a model without exits.
    """

    label: str
    exit: int


class Batch(NamedTuple):
    """A few new samples.

    Attributes:
        features: What the frozen blocks make of them, float32 [n, ...].
        truth: Their labels; None where they have none.
        places: Place of each sample in [0, 1), by its content; all windows of a recording have the same.
        marks: See `mark_of`.
    """

    features: Floats
    truth: Labels | None
    places: Doubles
    marks: RowNumbers


class DeviceTrainer(ABC):
    """A bundle that learns, in little memory: from here on the process gives what it frees back to the system at once.

    New samples go through the frozen blocks once and are kept as codes of the plan's width. Nothing is written until
    `save`.

    Args:
        bundle: The bundle or its folder, exported with ``--trainable``.
        threads: Threads within an operator; all that the process may use where it is not given.
        seed: Seed of the order of samples, of random changes and of dropouts.

    Attributes:
        bundle: What training starts from.
        plan: Plan it was made by; its recipe trains it again.
        policy: When a sample leaves, by the current thresholds; None without exits.
        before: Accuracy on the bundle's check samples before anything is trained; None where it brings none.
        right_before: Whether the bundle answers each of these right, bool [n]; likewise.
        earlier: Number of the user's own samples that it brings from trainings before.

    Raises:
        BundleError: The bundle cannot be used, or was not exported to be trained so.
    """

    #: Training formats that it reads.
    _trainer: ClassVar[str]
    #: Samples whose features are in memory at once.
    _at_once: ClassVar[int] = 32
    policy: ExitPolicy | None
    earlier: int = 0

    def __init__(self, bundle: Bundle | str | Path, threads: int | None = None, seed: int = 0) -> None:
        return_freed()
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        info = train_info(self.bundle, self._trainer)
        self.plan, self.policy = plan_of(self.bundle), self.bundle.exits
        self._threads, self._seed = threads or usable_processors(), seed
        self._replay, self._check = replay_of(self.bundle, REPLAY), replay_of(self.bundle, CHECK)
        self._new = self._replay.select(np.arange(0))
        self._is_frozen = bool(info.cut)  # whether there are frozen blocks before the tail
        self._losses: tuple[float, ...] = ()
        self._open(info)
        self.before, self.right_before = self._known()

    @abstractmethod
    def _open(self, info: TrainInfo) -> None:
        """Open what trains, and what gives the logits."""

    @abstractmethod
    def _fit(self, recipe: RecipePlan, watch: Watch) -> tuple[float, ...]:
        """Train the weights on the new samples and the bundle's global ones; return the mean loss of each epoch."""

    @abstractmethod
    def _logits(self, features: Floats) -> Floats:
        """Return the current logits of every exit, the final head's last, float32 [exits, n, labels]."""

    @abstractmethod
    def _replaced(self) -> Mapping[str, Content]:
        """Return what a new bundle has of its own: functions that return contents, by file."""

    def _unknown(self) -> tuple[bytes, UnknownInfo] | None:
        """Return what tells unknown samples in a new bundle; None where what the head reads has changed."""
        return None

    def _own_samples(self) -> int | None:
        """Return `TrainInfo.own_samples` of a new bundle."""
        return self.bundle.info.train.own_samples if self.bundle.info.train else None

    def __len__(self) -> int:
        """Return the number of new samples; of recordings, windows."""
        return len(self._new)

    @property
    def samples(self) -> int:
        """Number of the user's samples that `train` learns from."""
        return len(self)

    def add(self, samples: Sequence[SampleOrFile], labels: Sequence[Label] | None = None) -> None:
        """Take new samples to train on.

        Args:
            samples: Files as `Personaliser.predict_file` takes them, or arrays of the model's input shape; of signals,
                recordings, every window of which is a sample.
            labels: Label of each, among the bundle's; or its targets, in their own unit. None where they are not known
                of all: the final head's answers then teach the exits.

        Raises:
            TunerError: A file cannot be read, a shape is another one, or a label is not the bundle's; or there are no
                labels, and no exits.
        """
        self._require_labels(labels)
        for batch in self._batches(samples, labels):
            self._keep(batch)

    def features(self, samples: Sequence[SampleOrFile]) -> Floats:
        """Return what the frozen blocks make of samples, float32 [n, ...].

        Raises:
            TunerError: A file cannot be read, or a shape is another one.
        """
        return np.concatenate([batch.features for batch in self._batches(samples)])

    def drop(self, rows: Sequence[int]) -> None:
        """Take new samples out again; a shallow copy of the trainer keeps them.

        Args:
            rows: Their places, in the order they were added in.
        """
        self._new = self._new.select(np.delete(np.arange(len(self)), rows))

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
            TunerError: There are too few new samples, the batches are too large, or the loss is no longer a number; the
                weights then stay.
        """
        if not self.samples:
            raise BundleError("there is nothing new to train on: add samples first")
        own = self.plan.recipe
        recipe = replace(own, epochs=epochs or own.epochs, batch_size=batch_size or own.batch_size)
        losses = self._fit(recipe, watch)
        self._losses += losses
        return losses

    def answers(self, samples: Sequence[SampleOrFile]) -> list[Answer]:
        """Return what the current weights answer to samples, and where each leaves; errors as of `features`."""
        every = np.concatenate([self._logits(batch.features) for batch in self._batches(samples)], axis=1)
        logits, exits = self._leaving(every)
        texts = self.bundle.targets.texts(logits, self.bundle.labels)
        return [Answer(text, int(exit_)) for text, exit_ in zip(texts, exits, strict=True)]

    def answers_without(self, rows: Sequence[int], samples: Sequence[SampleOrFile]) -> list[Answer]:
        """Train on all new samples but some, and return that training's answers to these; nothing of it is kept.

        Args:
            rows: Places of the samples, in the order they were added in.
            samples: The samples.
        """
        without = copy(self)
        without.drop(rows)
        without.train()
        return without.answers(samples)

    def accuracy(self, samples: Sequence[SampleOrFile], labels: Sequence[Label] | None = None) -> float:
        """Return how many samples the current weights answer right; of several labels the AUC, of targets R².

        With exits, samples leave early as now; without labels, the final head's answers are the truth.

        Raises:
            TunerError: As `add`.
        """
        self._require_labels(labels)
        logits, truths = list[Floats](), list[Labels]()
        for batch in self._batches(samples, labels):
            logits.append(self._logits(batch.features))
            truths.append(self.bundle.targets.answers(logits[-1][-1]) if batch.truth is None else batch.truth)
        return self.bundle.targets.score(self._leaving(np.concatenate(logits, axis=1))[0], np.concatenate(truths))

    def global_accuracy(self) -> float | None:
        """Return the accuracy on the bundle's check samples: what was not forgotten. None where it brings none."""
        return self._known()[0]

    def earlier_right(self) -> tuple[Flags, Flags, Flags] | None:
        """Return whether the bundle answers the user's earlier samples right, and the current weights, bool [n] each.

        The third says whose label had no new sample, where steps have trained, bool [n]. A head in closed form answers
        each without it. None where the bundle brings none, or nothing has trained.
        """
        return None

    def logits(self, features: Floats) -> Floats:
        """Return the logits that the current weights answer with, float32 [n, labels], for what `features` returns."""
        return self._leaving(self._logits(features))[0]

    def save(self, out: str | Path) -> Path:
        """Write a bundle of the current weights that names its parent, and can be trained again.

        Args:
            out: A folder that does not exist yet, or is empty.

        Raises:
            BundleError: The folder cannot be made, or a written model computes something else than what was trained.
        """
        out = Path(out)
        scores = DeviceScores(self.before, self.global_accuracy(), self._losses, len(self))
        nodes, unknown = self._unknown() or (b"", None)
        replaced = {**self._replaced(), **({} if unknown is None else {UNKNOWN: lambda: nodes})}
        train = self.bundle.info.train and replace(self.bundle.info.train, own_samples=self._own_samples())
        parent = replace(self.bundle, info=replace(self.bundle.info, train=train))
        with successor(parent, out, replaced, scores, self.policy, unknown) as part:
            self._compare([part / model.relative_to(self.bundle.folder) for model in self.bundle.models])
        return out

    def _compare(self, models: Sequence[Path]) -> None:
        """Check that written models give the trained logits."""
        features = np.random.default_rng(0).standard_normal((2, *self.bundle.input_shape), np.float32)
        for model, logits in zip(models, self._logits(self._frozen()(features)), strict=True):
            deeper = () if model == models[-1] else (FEATURES,)
            *following, written = Session(model, self._threads).run(features, *deeper, LOGITS)
            require_parity(f"the written {model.name}", "what was trained", largest_difference(written, logits))
            features = following[0] if following else features

    def _frozen(self) -> Callable[[Floats], Floats]:
        """Return the frozen blocks: from normalised samples to features."""
        return Session(self.bundle.models[0], self._threads).features if self._is_frozen else lambda pixels: pixels

    def _require_labels(self, labels: Sequence[Label] | None) -> None:
        if labels is None and self.policy is None:
            raise BundleError(
                "a bundle without exits learns from labels, but there are none: give one for each sample, in a round "
                "by class folders"
            )

    def _batches(self, samples: Sequence[SampleOrFile], labels: Sequence[Label] | None = None) -> Iterator[Batch]:
        """Yield what the frozen blocks make of samples, some at a time."""
        if not len(samples) or (labels is not None and len(samples) != len(labels)):
            count = "" if labels is None else f" and {len(labels)} labels"
            raise BundleError(f"there are {len(samples)} samples{count}: give samples, and one label for each")
        if labels is not None and any(label is None for label in labels):
            raise BundleError("some samples have no label: add those in a call of their own, without labels")
        rows, arrays = None if labels is None else self.bundle.label_rows(labels), inputs(samples, self.bundle)
        frozen, places = self._frozen(), dict[int, float]()
        while batch := list(islice(arrays, self._at_once)):
            parts = [np.stack([array for _, array in batch[at : at + AT_ONCE]]) for at in range(0, len(batch), AT_ONCE)]
            features = [frozen(normalise(part, self.bundle.input)) for part in parts]
            marks = np.array([mark_of(array) for _, array in batch], np.int64)
            for (number, _), mark in zip(batch, marks, strict=True):
                places.setdefault(number, mark / 2**32)
            numbers = [number for number, _ in batch]
            truth = None if rows is None else rows[numbers]
            yield Batch(np.concatenate(features), truth, np.array([places[number] for number in numbers]), marks)

    def _keep(self, batch: Batch) -> None:
        """Keep labelled samples to train on."""
        if batch.truth is not None:
            self._new = self._new.extended(self._new.codec.encode(batch.features), batch.truth, batch.marks)

    def _every(self, samples: Replay) -> Floats:
        """Return the current logits of every exit for stored samples, float32 [exits, n, labels]."""
        batches = [self._logits(samples.read(rows)) for rows in batches_of(np.arange(len(samples)), self._at_once)]
        nothing = np.empty((len(self.bundle.models), 0, len(self.bundle.labels)), np.float32)
        return np.concatenate([nothing, *batches], axis=1)

    def _known(self) -> tuple[float | None, Flags | None]:
        """Return the accuracy on the check samples, and whether each is answered right; None where there are none."""
        if not len(self._check):
            return None, None
        logits, truth = self._leaving(self._every(self._check))[0], self._check.labels
        return self.bundle.targets.score(logits, truth), self.bundle.targets.are_right(logits, truth)

    def _leaving(self, logits: Floats) -> tuple[Floats, RowNumbers]:
        """Return the logits of the exit that each sample leaves at, float32 [n, labels], and these exits, int64 [n]."""
        if self.policy is None:
            return logits[-1], np.zeros(logits.shape[1], np.int64)
        sure = self.bundle.targets.confidences(logits, self.policy.temperatures)
        exits = exits_taken(sure, self.policy.thresholds)
        return logits[exits, np.arange(len(exits))], exits


def mark_of(sample: Array) -> int:
    """Return a number by which a sample, decoded and not normalised, is known again: the first bits of its hash."""
    return int(content_id(np.ascontiguousarray(sample).tobytes())[:8], 16)


def finite(weights: dict[str, Array], recipe: RecipePlan) -> dict[str, Array]:
    """Return trained weights, which must be finite."""
    if not all(np.isfinite(value).all() for value in weights.values()):
        raise BundleError(f"weights are no longer finite: lower recipe.learning_rate, {recipe.learning_rate:g}")
    return weights


def rewritten(model: Path, part: str, weights: Mapping[str, Array]) -> Content:
    """Return a function that returns an ONNX file's content with other weights of a part.

    Counters of batches, which are scalars, do not affect its output: they stay.
    """
    named = {f"{part}.{name}": value for name, value in weights.items() if value.ndim}
    return lambda: with_weights(model.read_bytes(), named)
