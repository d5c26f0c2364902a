"""A head that a plugin solves from sums of the training samples: in a trial, and again on a device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.arrays import Doubles, RowNumbers
from tuner.errors import TrainingError
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import Sums, one_hot
from tuner.ridge.union import Domain
from tuner.targets import SINGLE_LABEL, Targets


@dataclass(frozen=True, slots=True, eq=False)
class SolverSums:
    """What a plugin's `solve(sums)` receives: sums of what enters the head, each sample once, of weight 1.

    Attributes:
        local: Sums of the user's own samples; at least one.
        known: Sums of the global samples that are mixed in.
        given: The model's head before it was personalised.
        settings: Those of the edit.
        targets: What a sample's label is.
        known_weight: What all global samples count in, where all local ones count one (`DataPlan.weight`).
    """

    local: Sums
    known: Sums
    given: LinearHead
    settings: Mapping[str, Any] = field(default_factory=dict)
    targets: Targets = SINGLE_LABEL
    known_weight: float = 1.0

    @property
    def all(self) -> Sums:
        """Sums of all samples."""
        return self.local + self.known


#: Returns the head of some sums; it depends on nothing else, and numpy is enough for it.
HeadSolver = Callable[[SolverSums], LinearHead]


@dataclass(frozen=True, slots=True, eq=False)
class SummedHead:
    """How a plugin solves a head: its function, and what it receives next to sums; see `SolverSums`."""

    solve: HeadSolver
    given: LinearHead
    settings: Mapping[str, Any]
    targets: Targets = SINGLE_LABEL
    known_weight: float = 1.0

    def head(self, local: Domain, known: Domain) -> LinearHead:
        """Return the head of the samples of both domains.

        Raises:
            TrainingError: There are no local samples, or what `solve` returns is no head of these features and outputs.
        """
        if not len(local):
            raise TrainingError("a head needs local samples, but there are none: give some")
        sums = (_sums(local), _sums(known))
        head: object = self.solve(SolverSums(*sums, self.given, self.settings, self.targets, self.known_weight))
        shapes = self.given.weight.shape, self.given.bias.shape
        if not isinstance(head, LinearHead):
            raise TrainingError(f"solve(sums) must return a LinearHead, got {head!r:.80}")
        if (np.shape(head.weight), np.shape(head.bias)) != shapes:
            got = f"{list(np.shape(head.weight))} and {list(np.shape(head.bias))}"
            raise TrainingError(
                f"solve(sums) must return weights {list(shapes[0])} and biases {list(shapes[1])}, got {got}"
            )
        if not (np.isfinite(head.weight).all() and np.isfinite(head.bias).all()):
            raise TrainingError("solve(sums) must return finite weights, but some are not: sums may lack a class")
        return head

    def left_out(self, local: Domain, known: Domain, folds: RowNumbers) -> Doubles:
        """Return the logits of the local samples, float64 [n, outputs], each by the head without its fold's samples.

        `folds` has the number of each sample's fold, int64 [n]. Without any other sample the given head answers.
        """
        result = np.zeros((len(local), len(self.given.bias)))
        for number in np.unique(folds):
            rows = np.flatnonzero(folds == number)
            rest = local.without(rows)
            head = self.head(rest, known) if len(rest) else self.given
            result[rows] = head.scores(local.features[rows])
        return result


def _sums(domain: Domain) -> Sums:
    """Return the sums of features as they are: exact, as codes are whole numbers and steps powers of two."""
    empty = Sums.empty(domain.codes.shape[1], domain.outputs, domain.step)
    return empty.added(domain.codes, one_hot(domain.labels, domain.outputs)).rescaled(1.0)
