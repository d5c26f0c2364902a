"""Thresholds of early exits, their cost and accuracy, calibrated on samples that no exit has trained on.

In numpy alone: a device calibrates again after every round. Exit M, the last, is the model's own head.

Source: PersEPhonEE (HotMobile 2021), sections 3.3 and 3.4: a sample leaves at the first exit whose confidence is above
its threshold; thresholds 0, 0.05, … 1; the smallest whose accuracy is within the tolerance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
GRID = tuple(round(0.05 * step, 2) for step in range(21))
BINS = 15
LEAST_SHARE = 0.01  # of samples that leave at an exit, or it is pruned
ABOVE_CHANCE = 0.05  # least accuracy of an exit above chance, or it is pruned
TEMPERATURES = np.geomspace(0.05, 10.0, 81)


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
        right: 1 where the answer is right, 0 where not, float [exits + 1, n]; with several labels a sample, the share
            of labels that is right.
    """

    confidences: Floats
    right: Floats

    def select(self, exits: Sequence[int]) -> "Answers":
        """Return the answers of some side exits and of the last exit."""
        rows = [*exits, len(self.right) - 1]
        return Answers(self.confidences[rows], self.right[rows])


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
    """Return the exit at which each sample leaves: the first with a confidence above its threshold, else the last.

    Args:
        confidences: float [exits + 1, n].
        thresholds: Threshold of each side exit.
    """
    confident = confidences[:-1] > np.asarray(thresholds, np.float64)[:, None]
    last = np.ones((1, confidences.shape[1]), bool)
    exits: npt.NDArray[np.int64] = np.concatenate([confident, last]).argmax(axis=0)
    return exits


def operating_point(answers: Answers, costs: Costs, thresholds: Sequence[float]) -> OperatingPoint:
    """Return the accuracy and cost of some thresholds."""
    exits = exits_taken(answers.confidences, thresholds)
    rates = np.bincount(exits, minlength=len(answers.right)) / max(1, len(exits))
    accuracy = float(answers.right[exits, np.arange(len(exits))].mean()) if len(exits) else 0.0
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
    chance: float = 0.0,
    per_exit: bool = False,
    prune: bool = True,
) -> Calibration:
    """Choose thresholds, and drop exits that add nothing.

    Args:
        answers: Answers to the calibration samples.
        costs: Costs in the unit to be minimised.
        tolerance: Largest drop of accuracy.
        against: Accuracy that the drop is measured from: the last exit's, or the best of the sweep.
        chance: Accuracy of guessing; an exit must be 5 points better.
        per_exit: Whether every exit may have a lower threshold of its own.
        prune: Whether exits are dropped at all.
    """
    start = sweep(answers, costs)
    reference = start[-1].accuracy if against == "original" else max(setting.accuracy for setting in start)
    exits = tuple(range(len(answers.right) - 1))
    if prune:
        means = answers.right.mean(axis=1)
        exits = tuple(exit_ for exit_ in exits if means[exit_] >= chance + ABOVE_CHANCE)
    while True:
        chosen = _cheapest(answers.select(exits), costs.select(exits), reference - tolerance, per_exit=per_exit)
        used = tuple(exit_ for exit_, rate in zip(exits, chosen.rates, strict=False) if rate >= LEAST_SHARE)
        if not prune or used == exits:
            return Calibration(exits, chosen, reference)
        exits = used


def pareto_front(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return the points that no other beats in accuracy and mean cost, one of each, cheapest first."""
    best: list[OperatingPoint] = []
    for candidate in sorted(points, key=lambda candidate: (candidate.mean_cost, -candidate.accuracy)):
        if not best or candidate.accuracy > best[-1].accuracy:
            best.append(candidate)
    return best


def _cheapest(answers: Answers, costs: Costs, least: float, *, per_exit: bool) -> OperatingPoint:
    """Return the smallest admissible threshold; without any, 1, which no confidence is above."""
    points = sweep(answers, costs)
    chosen = next((candidate for candidate in points if candidate.accuracy >= least - 1e-12), points[-1])
    for exit_ in range(len(chosen.thresholds)) if per_exit else ():
        for threshold in GRID:
            thresholds = [*chosen.thresholds[:exit_], threshold, *chosen.thresholds[exit_ + 1 :]]
            candidate = operating_point(answers, costs, thresholds)
            if candidate.accuracy >= least - 1e-12 and candidate.mean_cost < chosen.mean_cost:
                chosen = candidate
    return chosen


def confidences(logits: Floats, temperature: float = 1.0, *, multi: bool = False) -> npt.NDArray[np.float64]:
    """Return the confidence of each row: the largest probability; with several labels, the mean of max(p, 1 − p).

    Args:
        logits: float [..., n, classes].
        temperature: Divisor of the logits.
        multi: Whether a sample may have several labels.
    """
    scaled = np.asarray(logits, np.float64) / temperature
    if multi:
        return np.asarray((1 / (1 + np.exp(-np.abs(scaled)))).mean(axis=-1))
    scaled -= scaled.max(axis=-1, keepdims=True)
    return np.asarray(1 / np.exp(scaled).sum(axis=-1))


def correctness(logits: Floats, truth: npt.NDArray[np.generic], *, multi: bool) -> npt.NDArray[np.float64]:
    """Return float64 [exits + 1, n]: 1 where an answer is right; with several labels, the share that is."""
    if multi:
        return np.asarray(((logits > 0) == (np.asarray(truth) > 0)).mean(axis=-1))
    return np.asarray((logits.argmax(axis=-1) == truth).astype(np.float64))


def fitted_temperature(logits: Floats, labels: npt.NDArray[np.generic], *, multi: bool = False) -> float:
    """Return the temperature with the least negative log-likelihood; Guo et al., 2017.

    Args:
        logits: float [exits, n, classes]: one temperature serves all exits.
        labels: int64 [n], or float32 [n, classes].
        multi: Whether a sample may have several labels.
    """
    wide = np.asarray(logits, np.float64)
    if multi:
        signed = wide * (1 - 2 * np.asarray(labels, np.float64))
        losses = [np.logaddexp(0, signed / temperature).mean() for temperature in TEMPERATURES]
    else:
        above = wide - wide.max(axis=-1, keepdims=True)
        own = np.take_along_axis(above, np.asarray(labels, np.int64)[None, :, None], axis=-1)[..., 0]
        losses = [
            (np.log(np.exp(above / temperature).sum(axis=-1)) - own / temperature).mean()
            for temperature in TEMPERATURES
        ]
    return float(TEMPERATURES[int(np.argmin(losses))])


def expected_calibration_error(confidences: Floats, right: Floats) -> float:
    """Return the mean distance between confidence and accuracy over 15 bins, weighted by samples; Guo et al., 2017.

    Args:
        confidences: float [n].
        right: float [n], 1 where the answer is right.
    """
    bins = np.minimum((np.asarray(confidences) * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, np.asarray(confidences) - np.asarray(right), minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
