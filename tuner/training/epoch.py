"""One epoch: the order of samples, their batches, the learning rate of each step, the mean loss."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.arrays import RowNumbers
from tuner.errors import TrainingError
from tuner.plan.parts import RecipePlan
from tuner.training.emphasis import Order
from tuner.training.schedule import batches_of, scheduled_rate
from tuner.training.steps import Steps

#: Called after every step with its number and the number of all steps; returns whether to stop there.
Watch = Callable[[int, int], bool]
#: Cuts an epoch's order into batches of at most a size.
Batches = Callable[[RowNumbers, int], Sequence[RowNumbers]]


class EpochResult(NamedTuple):
    """What an epoch gave.

    Attributes:
        loss: Mean over its samples.
        stopped: Whether it was stopped before its end, on request.
    """

    loss: float
    stopped: bool


class EpochLoop:
    """Runs the steps of a recipe's epochs, whatever the engine: engines differ in their steps alone.

    Args:
        steps: Trains on one batch.
        recipe: Epochs, batch size, learning rate and its schedule.
        samples: Number of training samples.
        seed: Seed of their order.
        batches: How an order is cut.
        order: Draws the rows of an epoch; a permutation of all samples where it is not given.
        loss_name: What messages call the loss.
    """

    def __init__(
        self,
        steps: Steps,
        recipe: RecipePlan,
        samples: int,
        seed: int,
        *,
        batches: Batches = batches_of,
        order: Order | None = None,
        loss_name: str = "the loss",
    ) -> None:
        self.steps, self.recipe, self._samples, self._loss_name = steps, recipe, samples, loss_name
        self._order = np.random.default_rng(seed)
        self._batches = batches
        self._rows = order or (lambda generator: generator.permutation(samples))
        self._count = recipe.epochs * math.ceil(samples / recipe.batch_size)
        self._done = 0

    def epoch(self, number: int, watch: Watch = lambda _step, _steps: False) -> EpochResult:
        """Train one epoch.

        Args:
            number: Number of the epoch, from 0.
            watch: Called after every step.

        Raises:
            TrainingError: The loss is no longer a number.
        """
        self.steps.begin_epoch()
        total, stopped = 0.0, False
        for rows in self._batches(self._rows(self._order), self.recipe.batch_size):
            if self.steps.norms_train and len(rows) == 1 and self._samples > 1:
                continue  # a batch norm has no statistics of one sample
            rate = scheduled_rate(self.recipe, self._done, self._count, self.steps.constant_until)
            total += self.steps.step(rows, rate) * len(rows)
            self._done += 1
            stopped = watch(self._done, self._count)
            if stopped:
                break
        loss = total / self._samples
        if not stopped and not math.isfinite(loss):
            raise TrainingError(
                f"{self._loss_name} became {loss} in epoch {number + 1}: lower recipe.learning_rate, which is "
                f"{self.recipe.learning_rate:g}"
            )
        self.steps.end_epoch()
        return EpochResult(loss, stopped)

    def epochs(self, watch: Watch = lambda _step, _steps: False) -> Iterator[EpochResult]:
        """Train all epochs, up to the one that is stopped; see `epoch`."""
        for number in range(self.recipe.epochs):
            result = self.epoch(number, watch)
            yield result
            if result.stopped:
                return

    def state(self) -> dict[str, Any] | None:
        """Return what the next epoch starts from in addition to the weights; None where it cannot be resumed."""
        state = self.steps.state()
        return None if state is None else {"order": self._order.bit_generator.state, "step": self._done, **state}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, with the weights of then."""
        self._order.bit_generator.state = state["order"]
        self._done = state["step"]
        self.steps.restore(state)
