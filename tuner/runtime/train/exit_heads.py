"""Training of a bundle's exits, one after the other, by steps or in closed form: none depends on another's weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.arrays import Array, Floats, Labels, RowNumbers
from tuner.bundle.format import Bundle
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.training_step import Read, StepSession, TrainingRows, train
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import RecipePlan
from tuner.ridge.personal import personal_head
from tuner.ridge.sums import Sums
from tuner.runtime.infer.chain import Chain
from tuner.runtime.train.exit_samples import AT_ONCE
from tuner.runtime.train.exit_targets import linear_features
from tuner.runtime.train.files import STEP_OF, SUMS
from tuner.training.epoch import Watch
from tuner.training.schedule import batches_of

MOST_FLOAT16 = float(np.finfo(np.float16).max)
Weights = Mapping[str, Array]


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
