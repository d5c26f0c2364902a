"""Which samples count for more: class-balanced epochs, and the weights of mixed-in samples in the loss."""

import math
from collections.abc import Callable

import numpy as np

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.plan.parts import DataPlan
from tuner.targets.strata import one_each

#: Draws the rows of one epoch, as many as there are samples.
Order = Callable[[np.random.Generator], RowNumbers]


def sample_weights(data: DataPlan, local: int, mixed: int) -> Floats | None:
    """Return the weight of each sample in the loss, float32 [local + mixed]; None where all count alike.

    The local samples come first, and weigh 1.
    """
    if data.weight == 1 or not mixed:
        return None
    return np.repeat(np.array([1.0, data.weight], np.float32), [local, mixed])


def epoch_order(data: DataPlan, labels: Labels) -> Order:
    """Return what draws an epoch's rows: a permutation, or rows of all classes in turns where classes are balanced."""
    return balanced_order(labels) if data.balance else lambda generator: generator.permutation(len(labels))


def balanced_order(labels: Labels) -> Order:
    """Return what draws rows of all classes in turns: neighbours, and so batches, hold each class as often as another.

    An epoch is as long as without balance: samples of rare classes come several times, of frequent ones some are left
    out, other ones in each epoch. With several labels a sample, its class is its rarest label; targets are one class.
    """
    numbers = one_each(labels)
    classes = [np.flatnonzero(numbers == one) for one in np.unique(numbers)]
    rounds = math.ceil(len(labels) / max(1, len(classes)))

    def draw(generator: np.random.Generator) -> RowNumbers:
        turns = [
            np.concatenate([generator.permutation(rows) for _ in range(math.ceil(rounds / len(rows)))])[:rounds]
            for rows in classes
        ]
        drawn: RowNumbers = generator.permuted(np.stack(turns, axis=1), axis=1).reshape(-1)[: len(labels)]
        return drawn

    return draw
