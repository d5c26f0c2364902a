"""Train a bundle's exits again, on the device that it runs on, with or without labels; the base package alone.

Source: PersEPhonEE (HotMobile 2021), section 3: the backbone and the final head stay as they are, and teach the exits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Doubles, Floats, Labels, RowNumbers
from tuner.bundle.exit_policy import ExitPolicy
from tuner.bundle.format import Bundle
from tuner.bundle.info import TrainInfo
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.tail import Tail
from tuner.ort.training_step import Read, StepSession, TrainingRows, train
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import RecipePlan
from tuner.ridge.personal import personal_head
from tuner.ridge.sums import Sums
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.infer.chain import Chain
from tuner.runtime.train.base import AT_ONCE, Batch, Content, DeviceTrainer, rewritten
from tuner.runtime.train.calibration import FOLDS, ExitCosts, calibrate_exits, calibration_share
from tuner.runtime.train.exit_targets import entropy, exit_targets, linear_features, regressed
from tuner.runtime.train.files import EXIT_WEIGHTS, LOGITS_OF, STEP_OF, SUMS
from tuner.training.epoch import Watch
from tuner.training.schedule import batches_of

LEAST = 10  # calibration samples, or the thresholds stay as they are
MOST_FLOAT16 = float(np.finfo(np.float16).max)
Weights = Mapping[str, Array]


class ExitsTrainer(DeviceTrainer):
    """A bundle whose exits learn, one after the other, from the final head's answers, and from labels.

    Labels teach where the plan uses them and there are any. Where exits train by steps, some new samples, by their
    content, set the thresholds instead; where they are solved for, each sets them by the answer of exits without its
    fold. The process gives the memory that it frees back to the system at once. Nothing is written until `save`.

    Args:
        bundle: The bundle or its folder, exported with exits and ``--trainable``.
        threads: Threads within an operator; all that the process may use where it is not given.
        seed: Seed of the order of samples.

    Attributes:
        policy: When a sample leaves, by the current thresholds.

    Raises:
        BundleError: The bundle cannot be used, or was not exported to be trained.
    """

    _trainer = "ExitsTrainer"
    _at_once = AT_ONCE  # a first exit reads large maps
    policy: ExitPolicy

    def _open(self, info: TrainInfo) -> None:  # noqa: ARG002 - of its exits the policy says enough
        self._chain = Chain.of(self.bundle, self._threads)
        file, count = self.bundle.file, len(self.thresholds)
        self._weights = exit_weights(self.bundle)
        self._heads = [Tail(file(LOGITS_OF.format(at)), self._threads) for at in range(count)]
        self._final: Floats = np.empty((0, len(self.bundle.labels)), np.float32)
        self._places: Doubles = np.empty(0)
        self._labelled = True

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Current threshold of every exit but the last."""
        return self.policy.thresholds

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Current divisor of every exit's logits."""
        return self.policy.temperatures

    def drop(self, rows: Sequence[int]) -> None:
        """Take new samples out again; see `DeviceTrainer.drop`."""
        super().drop(rows)
        self._final, self._places = np.delete(self._final, rows, 0), np.delete(self._places, rows)

    def _frozen(self) -> Callable[[Floats], Floats]:
        return lambda pixels: self._chain.step(0, pixels)[0]

    def _keep(self, batch: Batch) -> None:
        final = self._logits(batch.features)[-1]
        truth = self.bundle.targets.answers(final) if batch.truth is None else batch.truth
        super()._keep(batch._replace(truth=truth))
        self._final = np.concatenate([self._final, final])
        self._places = np.concatenate([self._places, batch.places])
        self._labelled = self._labelled and batch.truth is not None

    def _fit(self, recipe: RecipePlan, watch: Watch) -> tuple[float, ...]:
        """Train every exit on the new samples, or most, and the bundle's global ones, then set the thresholds anew.

        Returns:
            The exits' summed mean loss of each whole epoch; none where they are solved for at once.
        """
        plan, kind = self.plan.heads, self.bundle.targets
        apart = self._places < (0 if plan.ridge else calibration_share(len(self)))
        rows = np.flatnonzero(~apart)
        mixed = self._new.select(rows).extended(self._replay.codes, self._replay.labels)
        if len(mixed) < 2:  # noqa: PLR2004 - a norm has no statistics of one
            raise BundleError(
                f"{len(mixed)} samples are too few for the batch statistics of the exits' norms: add more"
            )
        final = np.concatenate([self._final[rows], self._every(self._replay)[-1]])
        heads = ExitHeads(self.bundle, self._chain, self._threads, self._seed)
        if plan.ridge:
            answers, truth = regressed(plan, final, mixed.labels, kind=kind)
            folds = (self._places * FOLDS).astype(np.int64)
            self._weights, unseen = heads.solve(self._weights, TrainingRows(mixed.read, answers), truth, folds, plan)
            self._calibrate(np.concatenate([unseen, self._final[None]]), self._new.labels)
            return ()
        targets = exit_targets(plan, final, mixed.labels, kind=kind)
        constant = entropy(plan, targets, kind=kind)
        if len(mixed) % recipe.batch_size == 1:  # that one is left out of every epoch
            constant *= 1 - 1 / len(mixed)
        recipe = replace(recipe, freeze_bn=False)
        self._weights, curves = heads.train(self._weights, TrainingRows(mixed.read, targets), recipe, watch)
        samples = self._new.select(np.flatnonzero(apart))
        self._calibrate(self._every(samples), samples.labels)
        return tuple(sum(value - constant for value in epoch) for epoch in zip(*curves, strict=False))

    def _logits(self, features: Floats) -> Floats:
        logits = []
        for at, (head, own) in enumerate(zip(self._heads, self._weights, strict=True)):
            logits.append(head.logits(features, own))
            features, _ = self._chain.step(at + 1, features)
        return np.stack([*logits, features])

    def _replaced(self) -> Mapping[str, Content]:
        state = {f"{at}.{name}": value for at, own in enumerate(self._weights) for name, value in own.items()}
        parts = zip(self.policy.segments, self._weights, strict=False)
        segments = {name: rewritten(self.bundle.folder / name, "side", own) for name, own in parts}
        return {EXIT_WEIGHTS: lambda: save(state), **segments}

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


def exit_weights(bundle: Bundle) -> list[Weights]:
    """Return the weights of a bundle's exits, by name.

    Raises:
        BundleError: They cannot be read.
    """
    state, count = read_tensors(bundle.file(EXIT_WEIGHTS)), len(bundle.models) - 1
    return [
        {name.removeprefix(f"{at}."): value for name, value in state.items() if name.startswith(f"{at}.")}
        for at in range(count)
    ]


@dataclass(frozen=True, slots=True)
class ExitHeads:
    """The exits of a bundle, as training sees them.

    Attributes:
        bundle: The bundle, exported with exits and ``--trainable``.
        chain: Its segments.
        threads: Threads within an operator.
        seed: Seed of the order of samples.
    """

    bundle: Bundle
    chain: Chain
    threads: int
    seed: int

    def train(
        self, given: Sequence[Weights], rows: TrainingRows, recipe: RecipePlan, watch: Watch
    ) -> tuple[list[Weights], list[list[float]]]:
        """Train one exit after the other, up to the one that is stopped.

        Args:
            given: Weights of each exit.
            rows: What the first exit reads, and what every exit shall answer.
            recipe: Recipe of each exit.
            watch: Called after every step of an exit; returns whether to stop there.

        Returns:
            The weights of all exits, and the mean losses of each trained one's whole epochs.

        Raises:
            TunerError: Weights or a loss are no longer numbers.
        """
        weights, curves = list(given), []
        for at in range(len(weights)):
            if at:
                rows = replace(rows, read=self._deeper(at, rows.read, len(rows.labels)))
            session = StepSession(self.bundle.file(STEP_OF.format(at)), weights[at], self.threads, self.seed)
            results = list(train(session, rows, recipe, self.seed, watch))
            curves.append([result.loss for result in results if not result.stopped])
            weights[at] = session.weights()
            if not all(np.isfinite(value).all() for value in weights[at].values()):
                raise BundleError(f"weights are no longer finite: lower recipe.learning_rate, {recipe.learning_rate:g}")
            if results[-1].stopped:
                break
        return weights, curves

    def solve(
        self,
        given: Sequence[Weights],
        rows: TrainingRows,
        truth: Labels,
        folds: RowNumbers,
        heads: HeadsPlan,
    ) -> tuple[list[Weights], Floats]:
        """Solve for all exits in closed form (`tuner.ridge.personal`): linear layers, without steps.

        Args:
            given: Weights of each exit, for their names.
            rows: What the first exit reads, and what every exit is regressed on, the new samples first.
            truth: Labels by which they are calibrated.
            folds: Fold of each new sample.
            heads: The plan's penalty, and whether exits begin with sums of global samples.

        Returns:
            The weights of all exits; and logits of every exit for the new samples, each by the exit that is solved
            without the sample's fold, float32 [exits, new samples, labels].

        Raises:
            TunerError: Features are not finite, or sums are not of this bundle's exits.
        """
        weights, unseen = list[Weights](), []
        for at, before in enumerate(given):
            if at:
                rows = replace(rows, read=self._deeper(at, rows.read, len(rows.labels)))
            batches = batches_of(np.arange(len(rows.labels)), AT_ONCE)
            features = np.concatenate([linear_features(rows.read(batch)) for batch in batches])
            sums = self._sums(at, features.shape[1]) if heads.global_weight else None
            head, answers = personal_head(
                features,
                rows.labels,
                truth,
                np.arange(len(folds)),
                folds,
                heads.ridge,
                kind=self.bundle.targets,
                given=sums,
            )
            unseen.append(answers.astype(np.float32))
            values = {name: head.weight if value.ndim > 1 else head.bias for name, value in before.items()}
            weights.append({name: value.astype(np.float32) for name, value in values.items()})
        return weights, np.stack(unseen)

    def _sums(self, at: int, features: int) -> Sums:
        """Return the sums of global samples that an exit begins with.

        Raises:
            BundleError: They are of another number of features or labels.
        """
        path, size = self.bundle.file(SUMS), features + 1
        tensors = read_tensors(path, tuple(f"{at}.{name}" for name in ("gram", "cross", "step")))
        gram, cross, step = tensors.values()
        wanted = (size, size), (size, len(self.bundle.labels)), ()
        if (gram.shape, cross.shape, step.shape) != wanted or step <= 0 or gram[-1, -1] <= 0:
            raise BundleError(f"{path} holds no sums of {features} features: export again")
        return Sums.of_tensors({"gram": gram, "cross": cross, "step": step})

    def _deeper(self, at: int, read: Read, count: int) -> Read:
        """Return how to read what an exit reads, from how to read what the one before it does."""
        parts = []
        for rows in batches_of(np.arange(count), AT_ONCE):
            features, _ = self.chain.step(at, read(rows))
            parts.append(np.clip(features, -MOST_FLOAT16, MOST_FLOAT16).astype(np.float16))
        maps = np.concatenate(parts)
        return lambda rows: maps[rows].astype(np.float32)
