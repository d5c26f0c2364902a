"""Train a bundle's exits again, on the device that it runs on, with or without labels; the base package alone.

Source: PersEPhonEE (HotMobile 2021), section 3: the backbone and the final head stay as they are, and teach the exits.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save

from tuner.backends.memory import return_freed
from tuner.backends.scores import accuracy, macro_auc
from tuner.errors import BundleError
from tuner.heads import HeadsPlan
from tuner.plan import TrialPlan
from tuner.runtime.bundle import PLAN, Bundle, successor
from tuner.runtime.calibration import (
    Answers,
    Costs,
    calibrate,
    confidences,
    fitted_temperature,
    front,
    leaves,
    rightness,
    sweep,
)
from tuner.runtime.chain import Chain, probabilities
from tuner.runtime.onnxfile import with_weights
from tuner.runtime.reading import Array, Label, Sample, inputs, label_rows
from tuner.runtime.records import Records
from tuner.runtime.session import Floats
from tuner.runtime.step import Read, Rows, StepSession, Watch, train
from tuner.runtime.tail import Tail
from tuner.runtime.trainer import CHECK, REPLAY, TOLERANCE, trainable
from tuner.task import normalise

STEP_OF, LOGITS_OF, WEIGHTS = "train/exit{}.onnx", "train/exit{}_logits.onnx", "exits.safetensors"
CALIBRATING = 5  # one new sample in so many is never trained on: thresholds are set on these
LEAST = 20  # of them, or the thresholds stay as they are
_BATCH = 16  # samples that run through the segments at once


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the segments make of some samples.

    Attributes:
        features: What each exit reads, float16 [n, ...].
        final: The final head's logits, float32 [n, labels].
        truth: int64 [n], or float32 [n, labels] of several labels a sample: their labels, or where there are none the
            final head's answers.
        numbers: int64 [n], of the sample that each is, or is a window of.
    """

    features: tuple[npt.NDArray[np.float16], ...]
    final: Floats
    truth: Array
    numbers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.final)

    def only(self, rows: npt.NDArray[np.int64]) -> "Seen":
        """Return some of the samples."""
        return Seen(tuple(one[rows] for one in self.features), self.final[rows], self.truth[rows], self.numbers[rows])


class ExitsTrainer:
    """A bundle whose exits learn, in little memory: the process returns what it frees to the system at once.

    New samples go through all segments once. The exits learn from the final head's answers, and from labels where the
    plan wants them and there are any. One new sample in five sets the thresholds instead. Nothing is written until
    `save`.

    Args:
        bundle: The bundle or its folder, exported with exits and ``--trainable``.
        threads: Within an operator; all the process may use where it is not given.
        seed: Of the order of samples.

    Attributes:
        bundle: What training starts from.
        plan: How it was made; its recipe trains the exits again.
        thresholds: Of every exit but the last, as they are now.
        temperature: That logits are divided by, likewise.
        before: Accuracy of leaving early on the bundle's check samples before anything is trained; None without any.

    Raises:
        BundleError: The bundle cannot be used, or was not exported to be trained.
    """

    def __init__(self, bundle: Bundle | str | Path, threads: int | None = None, seed: int = 0) -> None:
        return_freed()
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        folder, exits = self.bundle.folder, self.bundle.exits
        if "exits" not in trainable(self.bundle) or exits is None:
            raise BundleError(f"{folder} has no exits to train: use tuner.runtime.Trainer")
        self._exits = exits
        self.plan = TrialPlan.from_toml((folder / PLAN).read_text(encoding="utf-8"))
        self.thresholds, self.temperature = exits.thresholds, exits.temperature
        self._threads, self._seed = threads or len(os.sched_getaffinity(0)), seed
        self._multi = self.bundle.loss == "multi-label"
        self._chain = Chain.of(self.bundle, self._threads)
        state = load_file(folder / WEIGHTS)
        count = len(self.thresholds)
        self._weights = [
            {name.removeprefix(f"{at}."): one for name, one in state.items() if name.startswith(f"{at}.")}
            for at in range(count)
        ]
        self._heads = [Tail(folder / LOGITS_OF.format(at), self._threads) for at in range(count)]
        self._new: list[Seen] = []
        self._added = 0
        self._check = self._recorded(Records.load(folder / CHECK))
        self._losses: tuple[float, ...] = ()
        self._said: dict[str, object] = {}
        self.before = self.global_accuracy()

    def __len__(self) -> int:
        """How many new samples there are; of recordings, windows."""
        return sum(map(len, self._new))

    def add(self, samples: Sequence[Sample], labels: Sequence[Label] | None = None) -> None:
        """Take new samples to train on.

        Args:
            samples: As for `Trainer.add`.
            labels: Of each, among the bundle's; None where they are not known.

        Raises:
            TunerError: A file cannot be read, a shape is another one, or a label is not the bundle's.
        """
        self._new += self._seen(samples, labels)
        self._added += len(samples)

    def train(self, epochs: int | None = None, watch: Watch = lambda _step, _steps: False) -> tuple[float, ...]:
        """Train every exit on most of the new samples and the bundle's global ones, then set the thresholds anew.

        Args:
            epochs: As the plan says where it is not given.
            watch: Told of every step of an exit; returns whether to stop there.

        Returns:
            The exits' summed mean loss of each epoch.

        Raises:
            TunerError: There are no new samples, or the loss is no longer a number.
        """
        if not self._new:
            raise BundleError("there is nothing new to train on: add samples first")
        folder, new = self.bundle.folder, joined(self._new)
        apart = new.numbers % CALIBRATING == CALIBRATING - 1
        replay = self._recorded(Records.load(folder / REPLAY))
        mixed = joined([new.only(np.flatnonzero(~apart)), *([replay] if replay is not None else [])])
        recipe = replace(self.plan.recipe, epochs=epochs or self.plan.recipe.epochs, freeze_bn=False)
        labels = wanted(self.plan.heads, mixed.final, mixed.truth, multi=self._multi)
        constant = entropy(self.plan.heads, labels, multi=self._multi)
        totals = np.zeros(recipe.epochs)
        for at, features in enumerate(mixed.features):
            session = StepSession(folder / STEP_OF.format(at), self._weights[at], self._threads, self._seed)
            losses = [loss for loss, _ in train(session, Rows(read_from(features), labels), recipe, self._seed, watch)]
            totals[: len(losses)] += np.asarray(losses) - constant
            weights = session.weights()
            if not all(np.isfinite(value).all() for value in weights.values()):
                raise BundleError(f"weights are no longer finite: lower recipe.learning_rate, {recipe.learning_rate:g}")
            self._weights[at] = weights
        self._calibrate(new.only(np.flatnonzero(apart)))
        self._losses += tuple(totals.tolist())
        return tuple(totals.tolist())

    def accuracy(self, samples: Sequence[Sample], labels: Sequence[Label] | None = None) -> float:
        """Return how many samples are answered right, leaving early as now; of several labels a sample, the AUC.

        Without labels: how often the final head would have answered the same.

        Raises:
            TunerError: As `add`.
        """
        return self._scored(joined(self._seen(samples, labels)))

    def global_accuracy(self) -> float | None:
        """Return the accuracy on the bundle's check samples, leaving early as now. None where it brings none."""
        return None if self._check is None else self._scored(self._check)

    def save(self, out: str | Path) -> Path:
        """Write a bundle of the exits of the moment that names its parent, and can be trained again.

        Args:
            out: A folder that does not exist yet, or is empty.

        Raises:
            BundleError: The folder cannot be made, or a written segment computes something else than what was trained.
        """
        out, folder = Path(out), self.bundle.folder
        replaced = {WEIGHTS: save({f"{at}.{n}": one for at, own in enumerate(self._weights) for n, one in own.items()})}
        for name, own in zip(self._exits.segments, self._weights, strict=False):
            named = {f"side.{key}": value for key, value in own.items() if value.ndim}  # counters steer nothing
            replaced[name] = bytes(with_weights((folder / name).read_bytes(), named))
        after = {"global_accuracy": self.global_accuracy(), "losses": self._losses, "samples": len(self)}
        scores = {"before": {"global_accuracy": self.before}, "after": after}
        said = {**self.bundle.info["exits"], **self._said}
        with successor(self.bundle, out, replaced, scores, exits=said) as part:
            self._compare([part / name for name in self._exits.segments])
        return out

    def _seen(self, samples: Sequence[Sample], labels: Sequence[Label] | None) -> list[Seen]:
        """Run samples through all segments, some at a time."""
        if not len(samples) or (labels is not None and len(samples) != len(labels)):
            told = "no labels" if labels is None else f"{len(labels)} labels"
            raise BundleError(f"there are {len(samples)} samples and {told}: give samples, with a label each or none")
        rows, given = None if labels is None else label_rows(labels, self.bundle), inputs(samples, self.bundle)
        found = []
        while batch := list(islice(given, _BATCH)):
            pixels = normalise(np.stack([array for _, array in batch]), self.bundle.input)
            numbers = np.array([number for number, _ in batch], np.int64)
            truth = None if rows is None else rows[numbers]
            found.append(self._carried(self._chain.step(0, pixels)[0], truth, self._added + numbers))
        return found

    def _recorded(self, records: Records) -> Seen | None:
        """Run what is stored at the first exit through the segments after it; None where nothing is."""
        parts = [
            self._carried(records.read(rows), records.labels[rows], rows)
            for rows in np.split(np.arange(len(records)), range(_BATCH, len(records), _BATCH))
            if len(rows)
        ]
        return joined(parts) if parts else None

    def _carried(self, carried: Floats, truth: Array | None, numbers: npt.NDArray[np.int64]) -> Seen:
        """Run the first exit's features through the other segments."""
        features = [carried.astype(np.float16)]
        for index in range(1, len(self._chain)):
            carried, _ = self._chain.step(index, carried)
            features.append(carried.astype(np.float16))
        answers = carried > 0 if self._multi else carried.argmax(axis=1)
        own: Array = answers.astype(np.float32) if self._multi else answers
        return Seen(tuple(features[:-1]), carried, own if truth is None else truth, numbers)

    def _logits(self, seen: Seen) -> Floats:
        """Return what every exit and the final head say now, float32 [exits + 1, n, labels]."""
        sides = [
            head.logits(features.astype(np.float32), own)
            for head, features, own in zip(self._heads, seen.features, self._weights, strict=True)
        ]
        return np.stack([*sides, seen.final])

    def _scored(self, seen: Seen) -> float:
        logits = self._logits(seen)
        exits = leaves(confidences(logits, self.temperature, multi=self._multi), self.thresholds)
        left = logits[exits, np.arange(len(exits))]
        return macro_auc(left, seen.truth) if self._multi else accuracy(left, seen.truth)

    def _calibrate(self, seen: Seen) -> None:
        """Set thresholds and temperature on samples that no exit has trained on, as an export does."""
        if len(seen) < LEAST:
            return
        logits, heads = self._logits(seen), self.plan.heads
        self.temperature = fitted_temperature(logits, seen.truth, multi=self._multi)
        sure = confidences(logits, self.temperature, multi=self._multi)
        answers = Answers(sure, rightness(logits, seen.truth, multi=self._multi))
        free = (0.0,) * len(self.thresholds)  # heads are counted in what it costs to leave
        found = calibrate(
            answers,
            Costs(self._exits.shares, free),
            tolerance=self._exits.tolerance,
            against=heads.against,
            per_exit=heads.per_exit,
            prune=False,
        )
        self.thresholds = found.chosen.thresholds
        seconds = Costs(tuple(self.bundle.info["exits"]["seconds"]), free)
        self._said = {
            "thresholds": list(self.thresholds),
            "temperature": self.temperature,
            "reference_accuracy": found.reference,
            "calibration_samples": len(seen),
            "front": [
                {"threshold": one.thresholds[0], "accuracy": one.accuracy, "mean_latency_seconds": one.mean_cost}
                for one in front(sweep(answers, seconds))
            ],
        }

    def _compare(self, paths: Sequence[Path]) -> None:
        """Check that written segments give the logits of the trained exits."""
        chain = Chain(paths, len(self.bundle.labels), threads=self._threads)
        sample = np.random.default_rng(0).standard_normal((2, *self.bundle.input_shape), np.float32)
        carried = sample
        for at, (head, own) in enumerate(zip(self._heads, self._weights, strict=True)):
            carried, logits = chain.step(at, carried)
            worst = float(np.abs(head.logits(carried, own) - logits).max())
            if not worst <= TOLERANCE:
                raise BundleError(
                    f"written exit {at}'s logits differ by {worst:.2g} from the trained one's, more than {TOLERANCE:g}"
                )


def read_from(features: npt.NDArray[np.float16]) -> Read:
    """Return how rows of features are read."""
    return lambda rows: features[rows].astype(np.float32)


def joined(parts: Sequence[Seen]) -> Seen:
    """Return samples one part after the other."""
    columns: Iterator[tuple[npt.NDArray[np.float16], ...]] = zip(*(one.features for one in parts), strict=True)
    features = tuple(map(np.concatenate, columns))
    final, truth, numbers = zip(*((one.final, one.truth, one.numbers) for one in parts), strict=True)
    return Seen(features, np.concatenate(final), np.concatenate(truth), np.concatenate(numbers))


def wanted(heads: HeadsPlan, final: Floats, truth: Array, *, multi: bool) -> Floats:
    """Return what an exit shall answer: a hard answer's probabilities, then a softened one's; [n, 2 · labels].

    Args:
        heads: Whether the hard answer is the truth or the final head's own, and the temperature of the softened one.
        final: The final head's logits, float32 [n, labels].
        truth: int64 [n], or float32 [n, labels].
        multi: Whether a sample may have several labels.
    """
    if multi:
        hard = truth if heads.supervised else final > 0
    else:
        hard = np.eye(final.shape[1], dtype=np.float32)[truth if heads.supervised else final.argmax(axis=1)]
    soft = probabilities(final / heads.temperature, multi=multi)
    return np.concatenate([hard, soft], axis=1).astype(np.float32)


def entropy(heads: HeadsPlan, labels: Floats, *, multi: bool) -> float:
    """Return what no exit can take off its mean loss: the weighted entropy of the softened answers in `wanted`'s."""
    soft = labels[:, labels.shape[1] // 2 :].astype(np.float64)
    own = -soft * np.log(np.maximum(soft, 1e-300))
    rest = -(1 - soft) * np.log(np.maximum(1 - soft, 1e-300))
    each = (own + rest).mean(axis=1) if multi else own.sum(axis=1)
    return float(heads.distilled * heads.temperature**2 * each.mean())
