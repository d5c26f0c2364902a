"""Train a bundle's exits again, on the device that it runs on, with or without labels; the base package alone.

Source: PersEPhonEE (HotMobile 2021), section 3: the backbone and the final head stay as they are, and teach the exits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Doubles, Flags, Floats, Labels, RowNumbers
from tuner.bundle.format import Bundle, successor
from tuner.bundle.onnxfile import with_weights
from tuner.bundle.replay import Replay
from tuner.bundle.scores import DeviceScores
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.tail import Tail
from tuner.ort.training_step import TrainingRows
from tuner.process_memory import return_freed
from tuner.processors import usable_processors
from tuner.runtime.infer.calibration import Costs, exits_taken
from tuner.runtime.infer.chain import Chain
from tuner.runtime.infer.inputs import Sample
from tuner.runtime.train.answer import Answer, answers_to
from tuner.runtime.train.exit_calibration import FOLDS, ExitCosts, calibrate_exits, calibration_share
from tuner.runtime.train.exit_heads import ExitHeads
from tuner.runtime.train.exit_samples import AT_ONCE, exit_batches
from tuner.runtime.train.exit_targets import entropy, exit_targets, regressed
from tuner.runtime.train.files import (
    CHECK,
    EXIT_WEIGHTS,
    EXITS_FORMAT,
    LOGITS_OF,
    REPLAY,
    plan_of,
    replay_of,
    train_info,
)
from tuner.targets.base import Label
from tuner.training.epoch import Watch
from tuner.training.schedule import batches_of

LEAST = 10  # calibration samples, or the thresholds stay as they are


class ExitsTrainer:
    """A bundle whose exits learn, in little memory: the process returns what it frees to the system at once.

    New samples go through all segments once, and are kept as codes of what the first exit reads. The exits learn one
    after the other from the final head's answers, and from labels where the plan uses them and there are any. Where
    they train by steps, some new samples, by their content, set the thresholds instead; where they are solved for, each
    sets them by the answer of exits without its fold. Nothing is written until `save`.

    Args:
        bundle: The bundle or its folder, exported with exits and ``--trainable``.
        threads: Threads within an operator; all that the process may use where it is not given.
        seed: Seed of the order of samples.

    Attributes:
        bundle: What training starts from.
        plan: Plan it was made by; its recipe trains the exits again.
        policy: When a sample leaves, by the current thresholds.
        before: Accuracy of leaving early on the bundle's check samples before anything is trained; None without any.
        right_before: Whether the bundle answers each of these right, bool [n]; likewise.

    Raises:
        BundleError: The bundle cannot be used, or was not exported to be trained.
    """

    def __init__(self, bundle: Bundle | str | Path, threads: int | None = None, seed: int = 0) -> None:
        return_freed()
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        folder, policy = self.bundle.folder, self.bundle.exits
        if policy is None:
            raise BundleError(f"{folder} has no exits to train: use tuner.runtime.Trainer")
        train_info(self.bundle, EXITS_FORMAT)
        self.policy = policy
        self.plan = plan_of(self.bundle)
        self._threads, self._seed = threads or usable_processors(), seed
        self._chain = Chain.of(self.bundle, self._threads)
        file, count = self.bundle.file, len(policy.thresholds)
        state = read_tensors(file(EXIT_WEIGHTS))
        self._weights: list[Mapping[str, Array]] = [
            {name.removeprefix(f"{at}."): value for name, value in state.items() if name.startswith(f"{at}.")}
            for at in range(count)
        ]
        self._heads = [Tail(file(LOGITS_OF.format(at)), self._threads) for at in range(count)]
        self._replay, self._check = replay_of(self.bundle, REPLAY), replay_of(self.bundle, CHECK)
        self._new = self._replay.emptied()
        self._final: Floats = np.empty((0, len(self.bundle.labels)), np.float32)
        self._places: Doubles = np.empty(0)
        self._losses: tuple[float, ...] = ()
        self._labelled = True
        self.before, self.right_before = self._known()

    def __len__(self) -> int:
        """Return the number of new samples; of recordings, windows."""
        return len(self._new)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Current threshold of every exit but the last."""
        return self.policy.thresholds

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Current divisor of every exit's logits."""
        return self.policy.temperatures

    def add(self, samples: Sequence[Sample], labels: Sequence[Label] | None = None) -> None:
        """Take new samples to train on.

        Args:
            samples: Samples, as for `Trainer.add`.
            labels: Label of each, among the bundle's; None where they are not known of all.

        Raises:
            TunerError: A file cannot be read, a shape is another one, or a label is not the bundle's.
        """
        if labels is not None and any(label is None for label in labels):
            raise BundleError("some samples have no label: add those in a call of their own, without labels")
        for batch in exit_batches(self.bundle, self._chain, samples, labels):
            self._new = self._new.extended(self._new.codec.encode(batch.features), batch.truth)
            self._final = np.concatenate([self._final, batch.final])
            self._places = np.concatenate([self._places, batch.places])
        self._labelled = self._labelled and labels is not None

    def train(self, epochs: int | None = None, watch: Watch = lambda _step, _steps: False) -> tuple[float, ...]:
        """Train every exit on the new samples, or most, and the bundle's global ones, then set the thresholds anew.

        Args:
            epochs: Number of epochs; the plan's where it is not given.
            watch: Called after every step of an exit; returns whether to stop there.

        Returns:
            The exits' summed mean loss of each whole epoch; none where they are solved for at once.

        Raises:
            TunerError: There are too few new samples, or the loss is no longer a number; all weights then stay.
        """
        if not len(self):
            raise BundleError("there is nothing new to train on: add samples first")
        ridge = self.plan.heads.ridge
        apart = self._places < (0 if ridge else calibration_share(len(self)))
        rows = np.flatnonzero(~apart)
        mixed = self._new.select(rows).extended(self._replay.codes, self._replay.labels)
        if len(mixed) < 2:  # noqa: PLR2004 - a norm has no statistics of one
            raise BundleError(
                f"{len(mixed)} samples are too few for the batch statistics of the exits' norms: add more"
            )
        final = np.concatenate([self._final[rows], self._answers(self._replay)[-1]])
        recipe = replace(self.plan.recipe, epochs=epochs or self.plan.recipe.epochs, freeze_bn=False)
        targets = exit_targets(self.plan.heads, final, mixed.labels, kind=self.bundle.targets)
        constant = entropy(self.plan.heads, targets, kind=self.bundle.targets)
        if len(mixed) % recipe.batch_size == 1:  # that one is left out of every epoch
            constant *= 1 - 1 / len(mixed)
        heads = ExitHeads(self.bundle, self._chain, self._threads, self._seed)
        curves: list[list[float]] = []
        if ridge:
            answers, truth = regressed(self.plan.heads, final, mixed.labels, kind=self.bundle.targets)
            learned = TrainingRows(mixed.read, answers)
            folds = (self._places * FOLDS).astype(np.int64)
            self._weights, unseen = heads.solve(self._weights, learned, truth, folds, self.plan.heads)
            self._calibrate(np.concatenate([unseen, self._final[None]]), self._new.labels)
        else:
            self._weights, curves = heads.train(self._weights, TrainingRows(mixed.read, targets), recipe, watch)
            samples = self._new.select(np.flatnonzero(apart))
            self._calibrate(self._answers(samples), samples.labels)
        losses = tuple(sum(loss - constant for loss in epoch) for epoch in zip(*curves, strict=False))
        self._losses += losses
        return losses

    def drop(self, rows: Sequence[int]) -> None:
        """Take new samples out again; see `Trainer.drop`."""
        kept = np.delete(np.arange(len(self)), rows)
        self._new, self._final, self._places = self._new.select(kept), self._final[kept], self._places[kept]

    def answers(self, samples: Sequence[Sample]) -> list[Answer]:
        """Return what the current exits answer to samples, and where each leaves.

        Raises:
            TunerError: As `add`.
        """
        batches = exit_batches(self.bundle, self._chain, samples, None)
        logits, exits = self._leaving(np.concatenate([self._exit_logits(batch.features) for batch in batches], axis=1))
        return answers_to(self.bundle, logits, exits)

    def accuracy(self, samples: Sequence[Sample], labels: Sequence[Label] | None = None) -> float:
        """Return how many samples are answered right, leaving early as now; of several labels the AUC, of targets R².

        Without labels it is of the final head's answers: how often they are the same.

        Raises:
            TunerError: As `add`.
        """
        pairs = [
            (self._exit_logits(batch.features), batch.truth)
            for batch in exit_batches(self.bundle, self._chain, samples, labels)
        ]
        logits, truths = zip(*pairs, strict=True)
        left = self._leaving(np.concatenate(logits, axis=1))[0]
        return self.bundle.targets.score(left, np.concatenate(truths))

    def global_accuracy(self) -> float | None:
        """Return the accuracy on the bundle's check samples, leaving early as now. None where it brings none."""
        return self._known()[0]

    def save(self, out: str | Path) -> Path:
        """Write a bundle of the current exits that names its parent, and can be trained again.

        Args:
            out: A folder that does not exist yet, or is empty.

        Raises:
            BundleError: The folder cannot be made, or a written segment computes something else than what was trained.
        """
        out, folder = Path(out), self.bundle.folder
        state = {f"{at}.{name}": value for at, own in enumerate(self._weights) for name, value in own.items()}
        replaced: dict[str, Callable[[], bytes | bytearray]] = {EXIT_WEIGHTS: lambda: save(state)}
        for name, own in zip(self.policy.segments, self._weights, strict=False):
            of_head = {f"side.{key}": value for key, value in own.items() if value.ndim}  # counters steer nothing
            replaced[name] = partial(_with_weights, folder / name, of_head)
        scores = DeviceScores(self.before, self.global_accuracy(), self._losses, len(self))
        with successor(self.bundle, out, replaced, scores, self.policy) as part:
            self._compare([part / name for name in self.policy.segments])
        return out

    def _answers(self, samples: Replay) -> Floats:
        """Return the current logits of every exit and of the final head, float32 [exits + 1, n, labels]."""
        batches = [self._exit_logits(samples.read(rows)) for rows in batches_of(np.arange(len(samples)), AT_ONCE)]
        nothing = np.empty((len(self._chain), 0, len(self.bundle.labels)), np.float32)
        return np.concatenate([nothing, *batches], axis=1)

    def _exit_logits(self, features: Floats) -> Floats:
        """Return the current logits of all exits and the final head, [exits + 1, n, labels].

        Args:
            features: What the first exit reads.
        """
        logits = []
        for at, (head, own) in enumerate(zip(self._heads, self._weights, strict=True)):
            logits.append(head.logits(features, own))
            features, _ = self._chain.step(at + 1, features)
        return np.stack([*logits, features])

    def _known(self) -> tuple[float | None, Flags | None]:
        """Return the accuracy on the check samples, and whether each is answered right; None where there are none."""
        if not len(self._check):
            return None, None
        logits, truth = self._leaving(self._answers(self._check))[0], self._check.labels
        return self.bundle.targets.score(logits, truth), self.bundle.targets.are_right(logits, truth)

    def _leaving(self, logits: Floats) -> tuple[Floats, RowNumbers]:
        """Return the logits of the exit that each sample leaves at, float32 [n, labels], and these exits, int64 [n]."""
        exits = exits_taken(self.bundle.targets.confidences(logits, self.temperatures), self.thresholds)
        return logits[exits, np.arange(len(exits))], exits

    def _calibrate(self, logits: Floats, truth: Labels) -> None:
        """Set thresholds and temperatures on new samples, as a trial does.

        Args:
            logits: Of every exit and the final head, by exits that were not trained on the sample.
            truth: Labels of the samples.
        """
        if len(truth) < LEAST:
            return
        free = (0.0,) * len(self.thresholds)
        # heads are counted in what it costs to leave
        costs = ExitCosts(
            seconds=Costs(self.policy.seconds or self.policy.shares, free), flops=Costs(self.policy.shares, free)
        )
        heads = replace(self.plan.heads, tolerance=self.policy.tolerance)
        calibration = calibrate_exits(
            logits, truth, heads, costs.flops, kind=self.bundle.targets, prune=False, labelled=self._labelled
        )
        self.policy = calibration.policy(self.policy.segments, costs, labelled=self._labelled)

    def _compare(self, paths: Sequence[Path]) -> None:
        """Check that written segments give the logits of the trained exits."""
        chain = Chain(paths, len(self.bundle.labels), threads=self._threads)
        features = np.random.default_rng(0).standard_normal((2, *self.bundle.input_shape), np.float32)
        for at, (head, own) in enumerate(zip(self._heads, self._weights, strict=True)):
            features, logits = chain.step(at, features)
            require_parity(
                f"written exit {at}", "the trained one", largest_difference(head.logits(features, own), logits)
            )


def _with_weights(path: Path, weights: Mapping[str, Array]) -> bytearray:
    return with_weights(path.read_bytes(), weights)
