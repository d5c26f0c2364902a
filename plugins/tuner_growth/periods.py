"""When widths may grow: after which batches and epochs of a trial a controller decides."""

import math
from dataclasses import dataclass

#: Share of a trial's epochs in which widths may grow. In the rest a cosine rate falls: channels that are born while it
#: falls never train at the rate that the others had.
GROWING = 0.6
#: Fewest batches between two decisions, unless fewer than `LEAST_DECISIONS` would remain: a controller fits decays to
#: the scores of these batches.
LEAST_BATCHES = 100
LEAST_DECISIONS = 6


@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of a trial, which each end with a decision: several epochs, or parts of one.

    Attributes:
        epochs: Of the trial.
        steps: Optimiser steps of an epoch.
        growing: Epochs in which widths may grow, from the first.
        every: Epochs of a period; 1 where an epoch has several.
        parts: Periods of an epoch; 1 where they are not shorter.
    """

    epochs: int
    steps: int
    growing: int
    every: int
    parts: int

    @classmethod
    def of(cls, epochs: int, steps: int) -> "Periods":
        """Divide a trial.

        Args:
            epochs: Of the trial.
            steps: Optimiser steps of an epoch.
        """
        growing = math.floor(GROWING * epochs)
        every = max(1, min(math.ceil(LEAST_BATCHES / steps), growing // LEAST_DECISIONS))
        return cls(epochs, steps, growing - growing % every, every, max(1, steps // LEAST_BATCHES))

    def length(self, *, whole: bool) -> int:
        """Return the optimiser steps of a period, where it may be a part of an epoch or is at least a whole one."""
        return self.every * self.steps if whole else self.every * (self.steps // self.parts)

    def end_inside(self, step: int) -> bool:
        """Return whether a period ends inside an epoch, after a step counted from 1; the last one ends with it."""
        part = self.steps // self.parts
        return step % part == 0 and step < self.parts * part

    def end_with(self, epoch: int) -> bool:
        """Return whether a period ends with an epoch, counted from 1."""
        return epoch % self.every == 0
