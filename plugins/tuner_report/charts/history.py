"""How a run's front grew while its trials took their time."""

from dataclasses import dataclass

from tuner.plan.trial import TrialPlan
from tuner.results.records.judging import comparable
from tuner.results.run import Run
from tuner.results.scores.pareto import area


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a run in which its front was of one rung: scores of different rungs are of different samples.

    Attributes:
        rung: The rung; 0 is all samples.
        share: Share of the samples that a plan has there.
        points: Seconds that trials had taken, and the front's hypervolume then.
    """

    rung: int
    share: float
    points: tuple[tuple[float, float], ...]


def hypervolume(run: Run) -> list[Stretch]:
    """Return how the area of (local, global) accuracy under the front grew over the time of all trials.

    Without global data it is the best local accuracy.
    """
    seconds, found = 0.0, dict[int, tuple[float, list[tuple[float, float]]]]()
    for number, record in enumerate(run.records, start=1):
        seconds += record.spent_seconds
        members = comparable(run.records[:number])
        if not members:
            continue
        best = run.record(next(iter(members)))
        _, points = found.setdefault(best.rung, (_share(best.plan), []))
        points.append((seconds, area(members.values())))
    return [Stretch(rung, share, tuple(points)) for rung, (share, points) in found.items()]


def _share(plan: TrialPlan | None) -> float:
    return 1.0 if plan is None else plan.data.share
