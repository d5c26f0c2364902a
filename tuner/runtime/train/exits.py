"""Train a bundle's exits again, on the device that it runs on, with or without labels; the base package alone.

Source: PersEPhonEE (HotMobile 2021), section 3: the backbone and the final head stay as they are, and teach the exits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Doubles, Floats, Labels, RowNumbers
from tuner.bundle.exit_policy import ExitPolicy
from tuner.bundle.format import Bundle
from tuner.bundle.info import TrainInfo
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.tail import Tail
from tuner.ort.training_step import StepSession, TrainingRows, train
from tuner.plan.parts import RecipePlan
from tuner.ridge.personal import gated_head, personal_head
from tuner.ridge.sums import Sums
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.infer.chain import Chain
from tuner.runtime.train.base import AT_ONCE, Batch, Content, DeviceTrainer, finite, rewritten
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
    fold. Arguments, attributes and errors are those of `DeviceTrainer`.
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
        if plan.ridge:
            answers, truth = regressed(plan, final, mixed.labels, kind=kind)
            folds = (self._places * FOLDS).astype(np.int64)
            unseen, known = self._solve(TrainingRows(mixed.read, answers), truth, folds)
            others = (np.stack([*known, final[len(folds) :]]), mixed.labels[len(folds) :]) if plan.gated else None
            self._calibrate(np.concatenate([unseen, self._final[None]]), self._new.labels, others)
            return ()
        targets = exit_targets(plan, final, mixed.labels, kind=kind)
        constant = entropy(plan, targets, kind=kind)
        if len(mixed) % recipe.batch_size == 1:  # that one is left out of every epoch
            constant *= 1 - 1 / len(mixed)
        recipe = replace(recipe, freeze_bn=False)
        curves = self._train_each(TrainingRows(mixed.read, targets), recipe, watch)
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

    def _calibrate(self, logits: Floats, truth: Labels, known: tuple[Floats, Labels] | None = None) -> None:
        """Set thresholds and temperatures on new samples, by logits of exits that were not trained on them."""
        if len(truth) < LEAST:
            return
        free = (0.0,) * len(self.thresholds)  # heads are counted in what it costs to leave
        flops = Costs(self.policy.shares, free)
        costs = ExitCosts(seconds=Costs(self.policy.seconds or self.policy.shares, free), flops=flops)
        heads = replace(self.plan.heads, tolerance=self.policy.tolerance)
        calibration = calibrate_exits(
            logits, truth, heads, flops, kind=self.bundle.targets, prune=False, labelled=self._labelled, known=known
        )
        policy = calibration.policy(self.policy.segments, costs, labelled=self._labelled)
        self.policy = replace(policy, peak_bytes=self.policy.peak_bytes)

    def _train_each(self, rows: TrainingRows, recipe: RecipePlan, watch: Watch) -> list[list[float]]:
        """Train one exit after the other, up to the one that is stopped; return mean losses of whole epochs by exit.

        Args:
            rows: What the first exit reads, and what every exit shall answer.
            recipe: Recipe of each exit.
            watch: Called after every step of an exit; returns whether to stop there.
        """
        weights, curves = list(self._weights), []
        for at, own in enumerate(weights):
            rows = self._deeper(at, rows)
            session = StepSession(self.bundle.file(STEP_OF.format(at)), own, self._threads, self._seed)
            results = list(train(session, rows, recipe, self._seed, watch))
            curves.append([result.loss for result in results if not result.stopped])
            weights[at] = finite(session.weights(), recipe)
            if results[-1].stopped:
                break
        self._weights = weights
        return curves

    def _solve(self, rows: TrainingRows, truth: Labels, folds: RowNumbers) -> tuple[Floats, list[Floats]]:
        """Solve for all exits in closed form (`tuner.ridge.personal`): linear layers, without steps.

        Args:
            rows: What the first exit reads, and what every exit is regressed on, the new samples first.
            truth: Labels by which they are calibrated.
            folds: Fold of each new sample.

        Returns:
            Logits of every exit for the new samples, each by the exit that is solved without the sample's fold,
            float32 [exits, new samples, labels]; and of each exit with a gate those for the other samples.
        """
        plan, kind = self.plan.heads, self.bundle.targets
        weights, unseen, known = list[Weights](), [], list[Floats]()
        for at, before in enumerate(self._weights):
            rows = self._deeper(at, rows)
            batches = batches_of(np.arange(len(rows.labels)), AT_ONCE)
            features = np.concatenate([linear_features(rows.read(batch)) for batch in batches])
            sums = self._sums(at, features.shape[1]) if plan.global_weight else None
            new = np.arange(len(folds))
            if plan.gated:
                solved = gated_head(features, truth, new, folds, rows.labels.shape[1])
            else:
                solved = personal_head(features, rows.labels, truth, new, folds, plan.ridge, kind=kind, given=sums)
            head, answers = solved.head, solved.unseen
            known += [solved.known.astype(np.float32)] if solved.known is not None else []
            unseen.append(answers.astype(np.float32))
            values = {name: head.weight if value.ndim > 1 else head.bias for name, value in before.items()}
            weights.append({name: value.astype(np.float32) for name, value in values.items()})
        self._weights = weights
        return np.stack(unseen), known

    def _sums(self, at: int, features: int) -> Sums:
        """Return the sums of global samples that an exit begins with."""
        path, size = self.bundle.file(SUMS), features + 1
        tensors = read_tensors(path, tuple(f"{at}.{name}" for name in ("gram", "cross", "step")))
        gram, cross, step = tensors.values()
        wanted = (size, size), (size, len(self.bundle.labels)), ()
        if (gram.shape, cross.shape, step.shape) != wanted or step <= 0 or gram[-1, -1] <= 0:
            raise BundleError(f"{path} holds no sums of {features} features: export again")
        return Sums.of_tensors({"gram": gram, "cross": cross, "step": step})

    def _deeper(self, at: int, rows: TrainingRows) -> TrainingRows:
        """Return what an exit reads, from what the one before it does; the first reads what it is given."""
        if not at:
            return rows
        parts = []
        for batch in batches_of(np.arange(len(rows.labels)), AT_ONCE):
            features, _ = self._chain.step(at, rows.read(batch))
            parts.append(np.clip(features, -MOST_FLOAT16, MOST_FLOAT16).astype(np.float16))
        maps = np.concatenate(parts)
        return replace(rows, read=lambda numbers: maps[numbers].astype(np.float32))


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
