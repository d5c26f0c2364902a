"""Thresholds of early exits, their cost and accuracy, calibrated on samples that no exit has trained on.

In numpy alone: a device calibrates again after every round. Exit M, the last, is the model's own head.

Source: PersEPhonEE (HotMobile 2021), sections 3.3 and 3.4: a sample leaves at the first exit whose confidence is above
its threshold; thresholds 0, 0.05, … 1; the smallest whose accuracy is within the tolerance. Here an exit may also be
the end, with a threshold of 0; of all that are within the tolerance, the cheapest counts; and the tolerance is compared
with a bound of the difference on the same samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuner.runtime.infer.mcnemar import most_drop
from tuner.targets import Targets
from tuner.targets.regression import agreements

Floats = npt.NDArray[np.floating]

GRID = tuple(round(0.05 * step, 2) for step in range(21))
LEAST_SHARE = 0.01  # of samples that leave at an exit, or it is pruned
ABOVE_CHANCE = 0.05  # least accuracy of an exit above chance, or it is pruned
SLACK = 1e-12  # of rounding


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of blocks and side heads, in one unit: seconds or FLOPs.

    Attributes:
        reached: Cost of the blocks up to each exit, ascending; the last is the whole model's.
        heads: Cost of each side head; one fewer.
    """

    reached: tuple[float, ...]
    heads: tuple[float, ...]

    def cumulative(self) -> npt.NDArray[np.float64]:
        """Return the cost of a sample that leaves at each exit: the blocks, and every head on the way."""
        passed_heads = np.cumsum([*self.heads, 0.0])
        costs: npt.NDArray[np.float64] = np.asarray(self.reached) + passed_heads
        return costs

    def select(self, exits: Sequence[int]) -> "Costs":
        """Return the costs of some side heads and of the last exit."""
        reached = [self.reached[exit_] for exit_ in exits]
        return Costs((*reached, self.reached[-1]), tuple(self.heads[exit_] for exit_ in exits))


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers of every exit to some samples.

    Attributes:
        confidences: Confidence of each answer, float [exits + 1, n], in [0, 1].
        right: How far each answer is right, as `Targets.correctness` returns it, float [exits + 1, n].
        values: The answers, float32 [exits + 1, n, outputs], where exits are compared with those before them: which is
            another one where exits are left out.
    """

    confidences: Floats
    right: Floats
    values: Floats | None = None

    @classmethod
    def of(
        cls, logits: Floats, truth: npt.NDArray[np.generic], temperatures: Sequence[float], kind: Targets
    ) -> "Answers":
        """Return the answers that logits come to; see `Targets.confidences` and `Targets.correctness`."""
        return cls(kind.confidences(logits, temperatures), kind.correctness(logits, truth), kind.compared(logits))

    def select(self, exits: Sequence[int]) -> "Answers":
        """Return the answers of some side exits and of the last exit."""
        rows = [*exits, len(self.right) - 1]
        if self.values is None:
            return Answers(self.confidences[rows], self.right[rows])
        return Answers(agreements(self.values[rows]), self.right[rows], self.values[rows])


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Accuracy and cost of some thresholds on the calibration samples.

    Attributes:
        thresholds: Threshold of each side exit.
        accuracy: Accuracy of the answers that samples leave with.
        mean_cost: Mean cost of a sample.
        rates: Share of samples that leave at each exit, the last included; they add up to 1.
    """

    thresholds: tuple[float, ...]
    accuracy: float
    mean_cost: float
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Result of a calibration.

    Attributes:
        kept: Indices of the side exits that are worth keeping.
        chosen: Thresholds of these exits, and what they give.
        reference: Accuracy that the tolerance is measured from.
    """

    kept: tuple[int, ...]
    chosen: OperatingPoint
    reference: float


def exits_taken(confidences: Floats, thresholds: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return the exit at which each sample leaves, by confidences float [exits + 1, n] and the side exits' thresholds.

    It is the first with a confidence above its threshold, else the last.
    """
    confident = confidences[:-1] > np.asarray(thresholds, np.float64)[:, None]
    last = np.ones((1, confidences.shape[1]), bool)
    exits: npt.NDArray[np.int64] = np.concatenate([confident, last]).argmax(axis=0)
    return exits


def right_answers(answers: Answers, thresholds: Sequence[float]) -> Floats:
    """Return how far each sample's answer is right, by the exit that it leaves at, float [n]."""
    exits = exits_taken(answers.confidences, thresholds)
    return answers.right[exits, np.arange(len(exits))]


def operating_point(answers: Answers, costs: Costs, thresholds: Sequence[float]) -> OperatingPoint:
    """Return the accuracy and cost of some thresholds."""
    exits = exits_taken(answers.confidences, thresholds)
    rates = np.bincount(exits, minlength=len(answers.right)) / max(1, len(exits))
    accuracy = float(right_answers(answers, thresholds).mean()) if len(exits) else 0.0
    return OperatingPoint(tuple(thresholds), accuracy, float(rates @ costs.cumulative()), tuple(map(float, rates)))


def sweep(answers: Answers, costs: Costs) -> list[OperatingPoint]:
    """Return one point for each global threshold of the grid, ascending; at 1 every sample reaches the last exit."""
    return [operating_point(answers, costs, [threshold] * (len(answers.right) - 1)) for threshold in GRID]


def calibrate(
    answers: Answers,
    costs: Costs,
    *,
    tolerance: float,
    against: Literal["original", "best"] = "original",
    confidence: float = 0.5,
    chance: float = 0.0,
    per_exit: bool = False,
    prune: bool = True,
    known: Answers | None = None,
) -> Calibration:
    """Choose thresholds, and drop exits that add nothing.

    Args:
        answers: Answers to the calibration samples.
        costs: Costs in the unit to be minimised.
        tolerance: Largest drop of accuracy.
        against: Accuracy that the drop is measured from: the last exit's, or the best of the sweep.
        confidence: Confidence at which the drop must be within the tolerance; see `most_drop`.
        chance: Accuracy of guessing; an exit must be 5 points better.
        per_exit: Whether every exit may have a lower threshold of its own.
        prune: Whether exits are dropped at all.
        known: Answers to samples of what the model knew before: of them leaving early may cost at most `tolerance`
            more of the last exit's accuracy.
    """

    def keeps(known: Answers | None, thresholds: Sequence[float]) -> bool:
        return known is None or most_drop(known.right[-1], right_answers(known, thresholds), confidence) <= most

    most, start = tolerance + SLACK, sweep(answers, costs)
    kept = [point for point in start if keeps(known, point.thresholds)] or start[-1:]
    reference = start[-1] if against == "original" else max(kept, key=lambda point: point.accuracy)
    before, limit = right_answers(answers, reference.thresholds), max(reference.thresholds, default=1.0)
    exits, found = tuple(range(len(answers.right) - 1)), None
    if prune:
        means = answers.right.mean(axis=1)
        exits = tuple(exit_ for exit_ in exits if means[exit_] >= chance + ABOVE_CHANCE)
    while True:
        some, others = answers.select(exits), known.select(exits) if known is not None else None

        def admissible(thresholds: Sequence[float], some: Answers = some, others: Answers | None = others) -> bool:
            is_close = most_drop(before, right_answers(some, thresholds), confidence) <= most
            return is_close and keeps(others, thresholds)

        chosen = _cheapest(some, costs.select(exits), admissible, limit, per_exit=per_exit)
        if found is not None and chosen.accuracy < found.chosen.accuracy and not admissible(chosen.thresholds):
            return found  # the exits that were dropped are missed
        found = Calibration(exits, chosen, reference.accuracy)
        used = tuple(exit_ for exit_, is_used in zip(exits, _used(some, chosen), strict=True) if is_used)
        if not prune or used == exits:
            return found
        exits = used


def _used(answers: Answers, point: OperatingPoint) -> npt.NDArray[np.bool_]:
    """Return whether each side exit is worth its cost: samples leave there, or at one that is compared with it."""
    worth: npt.NDArray[np.bool_] = np.asarray(point.rates[:-1]) >= LEAST_SHARE
    if answers.values is not None:
        compares = worth & (np.asarray(point.thresholds) > 0)
        worth[:-1] |= compares[1:]
    return worth


def pareto_front(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return the points that no other beats in accuracy and mean cost, one of each, cheapest first."""
    best: list[OperatingPoint] = []
    for candidate in sorted(points, key=lambda candidate: (candidate.mean_cost, -candidate.accuracy)):
        if not best or candidate.accuracy > best[-1].accuracy:
            best.append(candidate)
    return best


def _cheapest(
    answers: Answers, costs: Costs, admissible: Callable[[Sequence[float]], bool], limit: float, *, per_exit: bool
) -> OperatingPoint:
    """Return the cheapest admissible thresholds: one of all exits, or with an exit at which all leave that come there.

    Where none is admissible, all exits have the threshold `limit`.
    """
    count = len(answers.right) - 1

    def better(thresholds: tuple[float, ...], chosen: OperatingPoint) -> OperatingPoint:
        candidate = operating_point(answers, costs, thresholds)
        return candidate if candidate.mean_cost < chosen.mean_cost and admissible(thresholds) else chosen

    ends = [(threshold, end) for end in range(count + 1) for threshold in GRID]
    candidates = [(threshold,) * end + (0.0,) * (count - end) for threshold, end in ends]
    chosen = operating_point(answers, costs, (limit,) * count)
    for thresholds in dict.fromkeys(candidates):
        chosen = better(thresholds, chosen)
    for exit_ in range(count) if per_exit else ():
        for threshold in GRID:
            thresholds = (*chosen.thresholds[:exit_], threshold, *chosen.thresholds[exit_ + 1 :])
            chosen = better(thresholds, chosen)
    return chosen
