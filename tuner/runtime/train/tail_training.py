"""Training of a tail by its traced step, from given weights: on the device, and where an export tries a round."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.errors import BundleError
from tuner.ort.training_step import StepSession, TrainingRows, train
from tuner.plan.parts import RecipePlan
from tuner.runtime.train.adapters import Adapters
from tuner.training.epoch import Watch


@dataclass(frozen=True, slots=True)
class TailTraining:
    """What trains a tail.

    Attributes:
        step: File of the traced step.
        adapters: What trains in the place of weights; None where the weights do.
        threads: Threads within an operator.
        seed: Seed of the order of samples, and of dropouts.
    """

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
        """Train for a recipe's epochs; return the tail's weights by name, and the mean loss of each epoch.

        Args:
            given: Weights to start from.
            rows: The samples.
            recipe: A batch size of at most the step's; the optimiser is the step's.
            watch: Called after every step; returns whether to stop there.

        Raises:
            TunerError: The batches are too large, or numbers are no longer finite.
        """
        first = given if self.adapters is None else self.adapters.begin(given)
        session = StepSession(self.step, first, self.threads, self.seed)
        losses = tuple(result.loss for result in train(session, rows, recipe, self.seed, watch))
        weights = session.weights() if self.adapters is None else self.adapters.merged(session.weights())
        if not all(np.isfinite(value).all() for value in weights.values()):
            raise BundleError(f"weights are no longer finite: lower recipe.learning_rate, {recipe.learning_rate:g}")
        return weights, losses
