"""Train a bundle's exits again, on the device that it runs on, with or without labels; the base package alone.

Source: PersEPhonEE (HotMobile 2021), section 3: the backbone and the final head stay as they are, and teach the exits.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from tuner.task.samples import content_id

STEP_OF, LOGITS_OF, WEIGHTS = "train/exit{}.onnx", "train/exit{}_logits.onnx", "exits.safetensors"
EXITS_FORMAT = 2  # of `train` in ``bundle.json``; 1 is that of a tail
#: Of the new samples, those that set thresholds and train nothing: a fifth, at least 50, at most half, as in a trial.
SHARE, WANTED, MOST_SHARE = 0.2, 50, 0.5
MOST_FLOAT16 = float(np.finfo(np.float16).max)
LEAST = 10  # of them, or the thresholds stay as they are
_BATCH = 2  # samples that run through the segments at once: more take memory, and no less time


class ExitsTrainer:
    """A bundle whose exits learn, in little memory: the process returns what it frees to the system at once.

    New samples go through all segments once, and are kept as codes of what the first exit reads. The exits learn one
    after the other from the final head's answers, and from labels where the plan wants them and there are any. Some new
    samples, by their content, set the thresholds instead. Nothing is written until `save`.

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
        if exits is None:
            raise BundleError(f"{folder} has no exits to train: use tuner.runtime.Trainer")
        trainable(self.bundle, EXITS_FORMAT)
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
        self._replay, self._check = Records.load(folder / REPLAY), Records.load(folder / CHECK)
        self._new = self._replay.none()
        self._final: Floats = np.empty((0, len(self.bundle.labels)), np.float32)
        self._places: npt.NDArray[np.float64] = np.empty(0)
        self._losses: tuple[float, ...] = ()
        self._labelled = True
        self._said: dict[str, object] = {}
        self.before = self.global_accuracy()

    def __len__(self) -> int:
        """How many new samples there are; of recordings, windows."""
        return len(self._new)

    def add(self, samples: Sequence[Sample], labels: Sequence[Label] | None = None) -> None:
        """Take new samples to train on.

        Args:
            samples: As for `Trainer.add`.
            labels: Of each, among the bundle's; None where they are not known of all.

        Raises:
            TunerError: A file cannot be read, a shape is another one, or a label is not the bundle's.
        """
        if labels is not None and any(one is None for one in labels):
            raise BundleError("some samples have no label: add those by themselves, without labels")
        for features, final, truth, places in self._batches(samples, labels):
            self._new = self._new.more(self._new.codec.encode(features), truth)
            self._final = np.concatenate([self._final, final])
            self._places = np.concatenate([self._places, places])
        self._labelled = self._labelled and labels is not None

    def train(self, epochs: int | None = None, watch: Watch = lambda _step, _steps: False) -> tuple[float, ...]:
        """Train every exit on most of the new samples and the bundle's global ones, then set the thresholds anew.

        Args:
            epochs: As the plan says where it is not given.
            watch: Told of every step of an exit; returns whether to stop there.

        Returns:
            The exits' summed mean loss of each whole epoch.

        Raises:
            TunerError: There are too few new samples, or the loss is no longer a number; all weights then stay.
        """
        if not len(self):
            raise BundleError("there is nothing new to train on: add samples first")
        apart = self._places < min(MOST_SHARE, max(SHARE, WANTED / len(self)))
        rows = np.flatnonzero(~apart)
        mixed = self._new.only(rows).more(self._replay.codes, self._replay.labels)
        if len(mixed) < 2:  # noqa: PLR2004 - a norm has no statistics of one
            raise BundleError(f"exits' norms have no statistics of {len(mixed)} samples: add more")
        final = np.concatenate([self._final[rows], self._answers(self._replay)[-1]])
        recipe = replace(self.plan.recipe, epochs=epochs or self.plan.recipe.epochs, freeze_bn=False)
        labels = wanted(self.plan.heads, final, mixed.labels, multi=self._multi)
        constant = entropy(self.plan.heads, labels, multi=self._multi)
        if len(mixed) % recipe.batch_size == 1:  # that one is left out of every epoch
            constant *= 1 - 1 / len(mixed)
        read: Read = mixed.read
        weights, curves, halted = list(self._weights), [], False
        for at in range(len(weights)):
            if at:
                read = self._deeper(at, read, len(mixed))
            session = StepSession(self.bundle.folder / STEP_OF.format(at), weights[at], self._threads, self._seed)
            curve = []
            for loss, halted in train(session, Rows(read, labels), recipe, self._seed, watch):
                curve += [] if halted else [loss - constant]
            curves.append(curve)
            weights[at] = session.weights()
            if not all(np.isfinite(value).all() for value in weights[at].values()):
                raise BundleError(f"weights are no longer finite: lower recipe.learning_rate, {recipe.learning_rate:g}")
            if halted:
                break
        self._weights = weights
        self._calibrate(np.flatnonzero(apart))
        losses = tuple(map(sum, zip(*curves, strict=False)))
        self._losses += losses
        return losses

    def accuracy(self, samples: Sequence[Sample], labels: Sequence[Label] | None = None) -> float:
        """Return how many samples are answered right, leaving early as now; of several labels a sample, the AUC.

        Without labels: how often the final head would have answered the same.

        Raises:
            TunerError: As `add`.
        """
        parts = [(self._sides(features), truth) for features, _, truth, _ in self._batches(samples, labels)]
        return self._scored(
            np.concatenate([one for one, _ in parts], axis=1), np.concatenate([one for _, one in parts])
        )

    def global_accuracy(self) -> float | None:
        """Return the accuracy on the bundle's check samples, leaving early as now. None where it brings none."""
        return self._scored(self._answers(self._check), self._check.labels) if len(self._check) else None

    def save(self, out: str | Path) -> Path:
        """Write a bundle of the exits of the moment that names its parent, and can be trained again.

        Args:
            out: A folder that does not exist yet, or is empty.

        Raises:
            BundleError: The folder cannot be made, or a written segment computes something else than what was trained.
        """
        out, folder = Path(out), self.bundle.folder
        state = {f"{at}.{name}": one for at, own in enumerate(self._weights) for name, one in own.items()}
        replaced: dict[str, Callable[[], bytes | bytearray]] = {WEIGHTS: lambda: save(state)}
        for name, own in zip(self._exits.segments, self._weights, strict=False):
            named = {f"side.{key}": value for key, value in own.items() if value.ndim}  # counters steer nothing
            replaced[name] = partial(_with_weights, folder / name, named)
        after = {"global_accuracy": self.global_accuracy(), "losses": self._losses, "samples": len(self)}
        scores = {"before": {"global_accuracy": self.before}, "after": after}
        said = {**self.bundle.info["exits"], **self._said}
        with successor(self.bundle, out, replaced, scores, exits=said) as part:
            self._compare([part / name for name in self._exits.segments])
        return out

    def _batches(
        self, samples: Sequence[Sample], labels: Sequence[Label] | None
    ) -> Iterator[tuple[Floats, Floats, Array, npt.NDArray[np.float64]]]:
        """Yield what the first exit reads, the final head's logits, truths and places in [0, 1), a few at a time.

        A truth is the label, or without labels the final head's answer. A place follows from the content of a sample,
        so that what once set thresholds does not train in a later round; all windows of a recording have one.
        """
        if not len(samples) or (labels is not None and len(samples) != len(labels)):
            told = "no labels" if labels is None else f"{len(labels)} labels"
            raise BundleError(f"there are {len(samples)} samples and {told}: give samples, with a label each or none")
        rows, given = None if labels is None else label_rows(labels, self.bundle), inputs(samples, self.bundle)
        places: dict[int, float] = {}
        while batch := list(islice(given, _BATCH)):
            for number, array in batch:
                if number not in places:
                    places[number] = int(content_id(np.ascontiguousarray(array).tobytes())[:8], 16) / 2**32
            pixels = normalise(np.stack([array for _, array in batch]), self.bundle.input)
            first, _ = carried = self._chain.step(0, pixels)
            for index in range(1, len(self._chain)):
                carried = self._chain.step(index, carried[0])
            final = carried[1]
            answers = (final > 0).astype(np.float32) if self._multi else final.argmax(axis=1)
            numbers = [number for number, _ in batch]
            yield first, final, answers if rows is None else rows[numbers], np.array([places[one] for one in numbers])

    def _answers(self, records: Records) -> Floats:
        """Return what every exit and the final head say now of what is kept, float32 [exits + 1, n, labels]."""
        parts = [
            self._sides(records.read(np.arange(begin, min(begin + _BATCH, len(records)))))
            for begin in range(0, len(records), _BATCH)
        ]
        nothing = np.empty((len(self._chain), 0, len(self.bundle.labels)), np.float32)
        return np.concatenate([nothing, *parts], axis=1)

    def _sides(self, carried: Floats) -> Floats:
        """Return what all exits and the final head say now of what the first exit reads: [exits + 1, n, labels]."""
        found = []
        for at, (head, own) in enumerate(zip(self._heads, self._weights, strict=True)):
            found.append(head.logits(carried, own))
            carried, _ = self._chain.step(at + 1, carried)
        return np.stack([*found, carried])

    def _deeper(self, at: int, read: Read, count: int) -> Read:
        """Return how to read what an exit reads, from how to read what the one before it does."""
        kept: list[npt.NDArray[np.float16]] = []
        for begin in range(0, count, _BATCH):
            carried, _ = self._chain.step(at, read(np.arange(begin, min(begin + _BATCH, count))))
            kept.append(np.clip(carried, -MOST_FLOAT16, MOST_FLOAT16).astype(np.float16))
        maps = np.concatenate(kept)
        return lambda rows: maps[rows].astype(np.float32)

    def _scored(self, logits: Floats, truth: Array) -> float:
        exits = leaves(confidences(logits, self.temperature, multi=self._multi), self.thresholds)
        left = logits[exits, np.arange(len(exits))]
        return macro_auc(left, truth) if self._multi else accuracy(left, truth)

    def _calibrate(self, rows: npt.NDArray[np.int64]) -> None:
        """Set thresholds and temperature on new samples that no exit has trained on, as an export does."""
        if len(rows) < LEAST:
            return
        kept, heads = self._new.only(rows), self.plan.heads
        logits = self._answers(kept)
        self.temperature = fitted_temperature(logits, kept.labels, multi=self._multi)
        sure = confidences(logits, self.temperature, multi=self._multi)
        answers = Answers(sure, rightness(logits, kept.labels, multi=self._multi))
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
            "calibration_samples": len(kept),
            "labelled": self._labelled,
            "front": [
                {"threshold": one.thresholds[0], "accuracy": one.accuracy, "mean_latency_seconds": one.mean_cost}
                for one in front(sweep(answers, seconds))
            ],
        }

    def _compare(self, paths: Sequence[Path]) -> None:
        """Check that written segments give the logits of the trained exits."""
        chain = Chain(paths, len(self.bundle.labels), threads=self._threads)
        carried = np.random.default_rng(0).standard_normal((2, *self.bundle.input_shape), np.float32)
        for at, (head, own) in enumerate(zip(self._heads, self._weights, strict=True)):
            carried, logits = chain.step(at, carried)
            worst = float(np.abs(head.logits(carried, own) - logits).max())
            if not worst <= TOLERANCE:
                raise BundleError(
                    f"written exit {at}'s logits differ by {worst:.2g} from the trained one's, more than {TOLERANCE:g}"
                )


def _with_weights(path: Path, named: Mapping[str, Array]) -> bytearray:
    return with_weights(path.read_bytes(), named)


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
