"""The calibration of exits, in a trial, of an exported bundle and on the device: from logits to thresholds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.arrays import Floats, Labels
from tuner.bundle.exit_policy import ExitPoint, ExitPolicy
from tuner.plan.heads import HeadsPlan
from tuner.runtime.infer.calibration import (
    Answers,
    Costs,
    calibrate,
    confidences,
    correctness,
    fitted_temperature,
    pareto_front,
    sweep,
)

#: Of the new samples, those that set thresholds and train nothing: a fifth, at least 50, at most half.
SHARE, LEAST, MOST_SHARE = 0.2, 50, 0.5


@dataclass(frozen=True, slots=True)
class ExitCosts:
    """Costs of leaving at each exit.

    Attributes:
        seconds: Measured latency.
        flops: FLOPs, or any other unit that does not depend on the moment: thresholds are chosen by these.
    """

    seconds: Costs
    flops: Costs

    def select(self, kept: Sequence[int]) -> "ExitCosts":
        """Return the costs of some exits and of the last."""
        return ExitCosts(self.seconds.select(kept), self.flops.select(kept))


@dataclass(frozen=True, slots=True)
class ExitCalibration:
    """The result of a calibration, stored with the exits' weights.

    Attributes:
        kept: Indices of the exits that are worth having.
        thresholds: Threshold of each of these.
        temperature: Divisor of the logits.
        tolerance: Drop of accuracy that the thresholds were chosen for.
        reference: Accuracy on the calibration samples that the drop is measured from.
        samples: Number of calibration samples.
        rates: Share of them that leaves at each kept exit, and at the last.
        front: Threshold of all exits, accuracy and mean seconds on them, where no other threshold is better in both.
    """

    kept: tuple[int, ...]
    thresholds: tuple[float, ...]
    temperature: float
    tolerance: float
    reference: float
    samples: int
    rates: tuple[float, ...]
    front: tuple[tuple[float, float, float], ...]

    def policy(self, segments: Sequence[str], costs: ExitCosts, *, labelled: bool) -> ExitPolicy:
        """Return what a bundle says of its exits.

        Args:
            segments: Files of the segments.
            costs: Costs of the kept exits.
            labelled: Whether the calibration samples have labels.
        """
        spent = costs.flops.cumulative()
        return ExitPolicy(
            segments=tuple(segments),
            shares=tuple((spent / spent[-1]).tolist()),
            thresholds=self.thresholds,
            temperature=self.temperature,
            tolerance=self.tolerance,
            reference_accuracy=self.reference,
            calibration_samples=self.samples,
            labelled=labelled,
            seconds=tuple(costs.seconds.cumulative().tolist()),
            front=tuple(ExitPoint(*point) for point in self.front),
        )


def calibration_share(samples: int) -> float:
    """Return the share of new samples that set thresholds and train nothing."""
    return min(MOST_SHARE, max(SHARE, LEAST / samples))


def calibrate_exits(
    logits: Floats, truth: Labels, heads: HeadsPlan, costs: ExitCosts, *, multi: bool, prune: bool
) -> ExitCalibration:
    """Choose thresholds, a temperature, and where `prune` says so the exits worth keeping.

    FLOPs decide, so that the choice does not depend on the moment; the front is reported in seconds.

    Args:
        logits: float32 [exits + 1, n, outputs] on the calibration samples; the last row is the final head's.
        truth: int64 [n], or float32 [n, outputs].
        heads: Tolerance, what it is measured from, and whether every exit has a threshold of its own.
        costs: Costs of leaving.
        multi: Whether a sample may have several labels.
        prune: Whether exits that add nothing are dropped.
    """
    temperature = fitted_temperature(logits, truth, multi=multi)
    answers = Answers(confidences(logits, temperature, multi=multi), correctness(logits, truth, multi=multi))
    result = calibrate(
        answers,
        costs.flops,
        tolerance=heads.tolerance,
        against=heads.against,
        chance=0.5 if multi else 1 / max(2, len(np.unique(truth))),
        per_exit=heads.per_exit,
        prune=prune,
    )
    points = pareto_front(sweep(answers.select(result.kept), costs.seconds.select(result.kept)))
    return ExitCalibration(
        kept=result.kept,
        thresholds=result.chosen.thresholds,
        temperature=temperature,
        tolerance=heads.tolerance,
        reference=result.reference,
        samples=len(truth),
        rates=result.chosen.rates,
        front=tuple(
            (point.thresholds[0] if point.thresholds else 1.0, point.accuracy, point.mean_cost) for point in points
        ),
    )
