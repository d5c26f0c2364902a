"""When to leave early: thresholds, their price and their gain, chosen on samples that no exit has trained on.

Everything here is numpy: a device calibrates again after every round. Exit M, the last, is the model's own head.

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
LEAST_SHARE = 0.01  # of samples that an exit takes, or it is pruned
ABOVE_CHANCE = 0.05  # accuracy that an exit has above chance, or it is pruned
TEMPERATURES = np.geomspace(0.05, 10.0, 81)


@dataclass(frozen=True, slots=True)
class Costs:
    """What it costs to leave at each exit, in one unit: seconds or FLOPs.

    Attributes:
        reached: Of the blocks up to each exit, ascending; the last is the whole model's.
        heads: Of each side head; one fewer.
    """

    reached: tuple[float, ...]
    heads: tuple[float, ...]

    def leaving(self) -> npt.NDArray[np.float64]:
        """Return the cost of a sample that leaves at each exit: the blocks, and every head it passed."""
        passed = np.cumsum([*self.heads, 0.0])
        found: npt.NDArray[np.float64] = np.asarray(self.reached) + passed
        return found

    def only(self, kept: Sequence[int]) -> "Costs":
        """Return the costs without the other side heads."""
        return Costs((*(self.reached[one] for one in kept), self.reached[-1]), tuple(self.heads[one] for one in kept))


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What every exit says of some samples.

    Attributes:
        confidences: float [exits + 1, n], in [0, 1].
        right: float [exits + 1, n]: 1 where the answer is right, 0 where not; a share with several labels a sample.
    """

    confidences: Floats
    right: Floats

    def only(self, kept: Sequence[int]) -> "Answers":
        """Return the answers of some exits and of the last."""
        rows = [*kept, len(self.right) - 1]
        return Answers(self.confidences[rows], self.right[rows])


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of the thresholds, on the calibration samples.

    Attributes:
        thresholds: One for each side exit.
        accuracy: Of the answers that samples leave with.
        mean_cost: Of a sample.
        rates: Share of samples that leave at each exit, the last included; they add up to 1.
    """

    thresholds: tuple[float, ...]
    accuracy: float
    mean_cost: float
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was chosen.

    Attributes:
        kept: Of the exits calibrated, the ones worth keeping, by index.
        chosen: With those exits.
        reference: The accuracy that the tolerance is measured from.
    """

    kept: tuple[int, ...]
    chosen: Point
    reference: float


def leaves(confidences: Floats, thresholds: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return the exit at which each sample leaves: the first with a confidence above its threshold, else the last.

    Args:
        confidences: float [exits + 1, n].
        thresholds: One for each side exit.
    """
    sure = confidences[:-1] > np.asarray(thresholds, np.float64)[:, None]
    last = np.ones((1, confidences.shape[1]), bool)
    found: npt.NDArray[np.int64] = np.concatenate([sure, last]).argmax(axis=0)
    return found


def point(answers: Answers, costs: Costs, thresholds: Sequence[float]) -> Point:
    """Return what a setting of the thresholds gives."""
    exits = leaves(answers.confidences, thresholds)
    rates = np.bincount(exits, minlength=len(answers.right)) / max(1, len(exits))
    accuracy = float(answers.right[exits, np.arange(len(exits))].mean()) if len(exits) else 0.0
    return Point(tuple(thresholds), accuracy, float(rates @ costs.leaving()), tuple(map(float, rates)))


def sweep(answers: Answers, costs: Costs) -> list[Point]:
    """Return one point for each global threshold of the grid, ascending; at 1 every sample reaches the last exit."""
    return [point(answers, costs, [threshold] * (len(answers.right) - 1)) for threshold in GRID]


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
        answers: On the calibration samples.
        costs: Of leaving, in the unit to spend least of.
        tolerance: Accuracy that leaving early may cost at most.
        against: From what: the last exit's accuracy, or the best of the sweep.
        chance: Accuracy of guessing; an exit must be 5 points better.
        per_exit: Whether every exit may have a lower threshold of its own.
        prune: Whether exits are dropped at all.
    """
    start = sweep(answers, costs)
    reference = start[-1].accuracy if against == "original" else max(one.accuracy for one in start)
    kept = tuple(range(len(answers.right) - 1))
    if prune:
        means = answers.right.mean(axis=1)
        kept = tuple(one for one in kept if means[one] >= chance + ABOVE_CHANCE)
    while True:
        few, price = answers.only(kept), costs.only(kept)
        chosen = _cheapest(few, price, reference - tolerance, per_exit=per_exit)
        taken = tuple(one for one, rate in zip(kept, chosen.rates, strict=False) if rate >= LEAST_SHARE)
        if not prune or taken == kept:
            return Calibration(kept, chosen, reference)
        kept = taken


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in accuracy and mean cost, one of each, cheapest first."""
    found: list[Point] = []
    for one in sorted(points, key=lambda one: (one.mean_cost, -one.accuracy)):
        if not found or one.accuracy > found[-1].accuracy:
            found.append(one)
    return found


def _cheapest(answers: Answers, costs: Costs, least: float, *, per_exit: bool) -> Point:
    """Return the smallest admissible threshold; without any, 1, which nobody is sure enough for."""
    points = sweep(answers, costs)
    chosen = next((one for one in points if one.accuracy >= least - 1e-12), points[-1])
    for exit_ in range(len(chosen.thresholds)) if per_exit else ():
        for threshold in GRID:
            tried = point(answers, costs, [*chosen.thresholds[:exit_], threshold, *chosen.thresholds[exit_ + 1 :]])
            if tried.accuracy >= least - 1e-12 and tried.mean_cost < chosen.mean_cost:
                chosen = tried
    return chosen


def confidences(logits: Floats, temperature: float = 1.0, *, multi: bool = False) -> npt.NDArray[np.float64]:
    """Return how sure each row is: the largest probability; with several labels, the mean of max(p, 1 − p).

    Args:
        logits: float [..., n, classes].
        temperature: That logits are divided by.
        multi: Whether a sample may have several labels.
    """
    scaled = np.asarray(logits, np.float64) / temperature
    found: npt.NDArray[np.float64]
    if multi:
        found = (1 / (1 + np.exp(-np.abs(scaled)))).mean(axis=-1)
        return found
    scaled -= scaled.max(axis=-1, keepdims=True)
    found = 1 / np.exp(scaled).sum(axis=-1)
    return found


def rightness(logits: Floats, truth: npt.NDArray[np.generic], *, multi: bool) -> npt.NDArray[np.float64]:
    """Return float64 [exits + 1, n]: 1 where an answer is right; with several labels the share that is."""
    found: npt.NDArray[np.float64]
    if multi:
        found = ((logits > 0) == (np.asarray(truth) > 0)).mean(axis=-1)
        return found
    found = (logits.argmax(axis=-1) == truth).astype(np.float64)
    return found


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
        losses = [np.logaddexp(0, signed / one).mean() for one in TEMPERATURES]
    else:
        above = wide - wide.max(axis=-1, keepdims=True)
        own = np.take_along_axis(above, np.asarray(labels, np.int64)[None, :, None], axis=-1)[..., 0]
        losses = [(np.log(np.exp(above / one).sum(axis=-1)) - own / one).mean() for one in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])


def expected_calibration_error(sure: Floats, right: Floats) -> float:
    """Return the mean distance between confidence and accuracy over 15 bins, weighted by samples; Guo et al., 2017.

    Args:
        sure: float [n], confidences.
        right: float [n], 1 where the answer is right.
    """
    bins = np.minimum((np.asarray(sure) * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, np.asarray(sure) - np.asarray(right), minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
