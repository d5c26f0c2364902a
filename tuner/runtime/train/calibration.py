"""The calibration of exits, in a trial, of an exported bundle and on the device: from logits to thresholds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from tuner.arrays import Floats, Labels
from tuner.bundle.exit_policy import ExitPoint, ExitPolicy
from tuner.plan.heads import HeadsPlan
from tuner.runtime.infer.calibration import Answers, Costs, OperatingPoint, calibrate, pareto_front, sweep
from tuner.targets import Targets

#: Number of folds of the local samples where each sets thresholds by its answer from exits without its fold.
FOLDS = 5
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
        temperatures: Divisor of the logits of each of these, and of the final head's.
        tolerance: Drop of accuracy that the thresholds were chosen for.
        reference: Accuracy on the calibration samples that the drop is measured from.
        samples: Number of calibration samples.
        rates: Share of them that leaves at each kept exit, and at the last.
        sweep: What each threshold gives, if all exits have it.
        out_of_fold: Whether they are all local samples, each answered by exits without its fold; else they were
            withheld.
    """

    kept: tuple[int, ...]
    thresholds: tuple[float, ...]
    temperatures: tuple[float, ...]
    tolerance: float
    reference: float
    samples: int
    rates: tuple[float, ...]
    sweep: tuple[OperatingPoint, ...]
    out_of_fold: bool = False

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` made of one."""
        sequences = {name: tuple(content[name]) for name in ("kept", "thresholds", "temperatures", "rates")}
        points = (
            OperatingPoint(tuple(point["thresholds"]), point["accuracy"], point["mean_cost"], tuple(point["rates"]))
            for point in content["sweep"]
        )
        return cls(**{**content, **sequences, "sweep": tuple(points)})

    def policy(
        self, segments: Sequence[str], costs: ExitCosts, *, labelled: bool, whole: float | None = None
    ) -> ExitPolicy:
        """Return what a bundle of these segments says of its exits.

        Args:
            segments: Names of the files.
            costs: Those of the kept exits.
            labelled: Whether the calibration samples have labels.
            whole: FLOPs of the whole model; by default those of the last segment's end.
        """
        spent, seconds = costs.flops.cumulative(), costs.seconds.cumulative()
        timed = [replace(point, mean_cost=float(np.asarray(point.rates) @ seconds)) for point in self.sweep]
        return ExitPolicy(
            segments=tuple(segments),
            shares=tuple((spent / (whole or spent[-1])).tolist()),
            thresholds=self.thresholds,
            temperatures=self.temperatures,
            tolerance=self.tolerance,
            reference_accuracy=self.reference,
            calibration_samples=self.samples,
            labelled=labelled,
            seconds=tuple(seconds.tolist()),
            front=tuple(
                ExitPoint(max(point.thresholds, default=1.0), point.accuracy, point.mean_cost)
                for point in pareto_front(timed)
            ),
        )


def calibration_share(samples: int) -> float:
    """Return the share of new samples that set thresholds and train nothing."""
    return min(MOST_SHARE, max(SHARE, LEAST / samples))


def calibrate_exits(
    logits: Floats,
    truth: Labels,
    heads: HeadsPlan,
    flops: Costs,
    *,
    kind: Targets,
    prune: bool,
    labelled: bool = True,
    out_of_fold: bool = False,
    known: tuple[Floats, Labels] | None = None,
) -> ExitCalibration:
    """Choose thresholds, a temperature of each exit, and where `prune` says so the exits worth keeping.

    Args:
        logits: float32 [exits + 1, n, outputs] on the calibration samples; the last row is the final head's.
        truth: int64 [n], or float32 [n, outputs].
        heads: Tolerance, what it is measured from, its confidence, and whether every exit has a threshold of its own.
        flops: FLOPs of leaving at each exit, or any other unit that does not depend on the moment: they decide.
        kind: What a sample's label is.
        prune: Whether exits that add nothing are dropped.
        labelled: Whether the truth is labels; else it is the final head's answers, by which its own temperature cannot
            be fitted and is 1.
        out_of_fold: Whether the exits' logits are those of exits without the sample's fold.
        known: Of exits with gates, logits of samples that the model knew, and their labels.
    """
    fitted = logits if labelled else logits[:-1]
    if known is not None:  # what a gate lets leave is calibrated on both domains already
        last = kind.fitted_temperature(logits[-1:], truth) if labelled else 1.0
        temperatures = [*np.ones(len(logits) - 1), last]
    else:
        temperatures = [kind.fitted_temperature(own[None], truth) for own in fitted] + [1.0] * (not labelled)
    answers = Answers.of(logits, truth, temperatures, kind)
    result = calibrate(
        answers,
        flops,
        tolerance=heads.tolerance,
        against=heads.against,
        confidence=heads.confidence,
        chance=kind.chance(truth),
        per_exit=heads.per_exit,
        prune=prune,
        known=Answers.of(*known, temperatures, kind) if known is not None else None,
    )
    return ExitCalibration(
        kept=result.kept,
        thresholds=result.chosen.thresholds,
        temperatures=tuple(temperatures[index] for index in (*result.kept, -1)),
        tolerance=heads.tolerance,
        reference=result.reference,
        samples=len(truth),
        rates=result.chosen.rates,
        sweep=tuple(sweep(answers.select(result.kept), flops.select(result.kept))),
        out_of_fold=out_of_fold,
    )
