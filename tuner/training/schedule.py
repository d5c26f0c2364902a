"""What a recipe makes of an epoch: its batches, and the learning rate of each step."""

import math

import numpy as np

from tuner.arrays import RowNumbers
from tuner.plan.parts import RecipePlan

#: The learning rate of ``"warmup"`` and ``"wsd"`` rises over so many steps, or those of an epoch if they are fewer.
WARMUP_STEPS = 32
#: Share of the steps over which the learning rate of `"wsd"` falls to 0.
DECAY_SHARE = 0.2


def scheduled_rate(recipe: RecipePlan, done: int, count: int, constant_until: float = 0.0) -> float:
    """Return the learning rate of the next step, when `done` of `count` steps are done.

    The cosine begins to fall at the share of steps `constant_until`, below 1.
    """
    if recipe.schedule == "exponential":
        return recipe.learning_rate * math.pow(recipe.decay_rate, done / recipe.decay_steps)
    if recipe.schedule == "steps":
        passed = [rate for step, rate in recipe.milestones if step <= done]
        return passed[-1] if passed else recipe.learning_rate
    if recipe.schedule in {"warmup", "wsd"}:
        risen = min(1.0, (done + 1) / max(1, min(WARMUP_STEPS, count // recipe.epochs)))
        left = (count - done) / (DECAY_SHARE * count) if recipe.schedule == "wsd" else 1.0
        return recipe.learning_rate * risen * min(1.0, left)
    share = done / count
    if recipe.schedule != "cosine" or share <= constant_until:
        return recipe.learning_rate
    fallen = (share - constant_until) / (1 - constant_until)
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * fallen))


def epochs_done(done: int, before: int, samples: int, epochs: int) -> int:
    """Return how many of some epochs on `samples` those that were done on `before` are; at least one is left."""
    return min(done * before // samples, epochs - 1)


def batches_of(rows: RowNumbers, size: int) -> list[RowNumbers]:
    """Return the rows, `size` at a time; the last batch may be smaller."""
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def even_batches_of(rows: RowNumbers, size: int) -> list[RowNumbers]:
    """Return the rows in as few batches of at most `size` as possible, all of about the same size."""
    return np.array_split(rows, math.ceil(len(rows) / size))
