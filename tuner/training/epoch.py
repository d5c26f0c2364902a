"""One epoch: the order of samples, their batches, the learning rate of each step, the mean loss."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.arrays import RowNumbers
from tuner.errors import DivergedError
from tuner.plan.parts import RecipePlan
from tuner.training.emphasis import Order
from tuner.training.schedule import batches_of, scheduled_rate
from tuner.training.steps import Steps

#: A loss that rises to so many times that of the first steps, and by so much, has diverged; so has one that rises to
#: so many times the first epoch's, and by so much.
RISEN, RISEN_BY, WORSE, WORSE_BY = 1.5, 0.5, 1.25, 0.2
#: Number of steps that give the first loss.
FIRST_STEPS = 4
#: Called after every step with its number and the number of all steps; returns whether to stop there.
Watch = Callable[[int, int], bool]
#: Cuts an epoch's order into batches of at most a size.
Batches = Callable[[RowNumbers, int], Sequence[RowNumbers]]


class EpochResult(NamedTuple):
    """The mean loss over the samples that were trained on, and whether it was stopped before its end, on request."""

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
        guarded: Whether a loss that rises above what it began with ends the training.

    Attributes:
        between_epochs: Whether the last epoch was not stopped before its end.
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
        guarded: bool = False,
    ) -> None:
        self.steps, self.recipe, self.samples, self._loss_name = steps, recipe, samples, loss_name
        self._order = np.random.default_rng(seed)
        self._batches = batches
        self._rows = order or (lambda generator: generator.permutation(samples))
        self._steps_of_epoch = math.ceil(samples / recipe.batch_size)
        self._count = recipe.epochs * self._steps_of_epoch
        self._done, self.between_epochs = 0, True
        self._guarded, self._first, self._first_epoch = guarded, list[float](), math.inf

    def epoch(self, number: int, watch: Watch = lambda _step, _steps: False) -> EpochResult:
        """Train one epoch, numbered from 0.

        Raises:
            DivergedError: The loss is no longer a number, or rose although it is guarded.
        """
        self.steps.begin_epoch()
        total, seen, stopped = 0.0, 0, False
        for rows in self._batches(self._rows(self._order), self.recipe.batch_size):
            if self.steps.norms_train and len(rows) == 1 and self.samples > 1:
                continue  # a batch norm has no statistics of one sample
            rate = scheduled_rate(self.recipe, self._done, self._count, self.steps.constant_until)
            loss = self.steps.step(rows, rate)
            total, seen = total + loss * len(rows), seen + len(rows)
            self._done += 1
            if len(self._first) < FIRST_STEPS:
                self._first.append(loss)
            stopped = watch(self._done, self._count)
            if stopped:
                break
            if not math.isfinite(loss):
                raise self._diverged(f"became {loss} in epoch {number + 1}")
        self.between_epochs = not stopped
        loss = total / max(1, seen)
        if self._guarded and not stopped:
            begun = RISEN * sum(self._first) / max(1, len(self._first)) + RISEN_BY
            if loss > min(begun, WORSE * self._first_epoch + WORSE_BY):
                raise self._diverged(f"rose to {loss:.3g} in epoch {number + 1}")
            if number == 0:
                self._first_epoch = loss
        self.steps.end_epoch()
        return EpochResult(loss, stopped)

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"{self._loss_name} {what}: lower recipe.learning_rate, which is {self.recipe.learning_rate:g}"
        )

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
        if state is None:
            return None
        begun = {"first": self._first, "first_epoch": self._first_epoch, "engine": type(self.steps).__name__}
        return {"order": self._order.bit_generator.state, "step": self._done, **begun, **state}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, with the weights of then."""
        self._order.bit_generator.state = state["order"]
        self._done, self._first, self._first_epoch = state["step"], state["first"], state["first_epoch"]
        if state["engine"] == type(self.steps).__name__:  # another one begins with the weights alone
            self.steps.restore(state)

    def resume_at(self, epochs: int) -> None:
        """Count so many epochs as done: those before were of another number of steps."""
        self._done = epochs * self._steps_of_epoch
