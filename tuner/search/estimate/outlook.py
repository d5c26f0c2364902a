"""Whether a trial that trains can still reach the front: its own curve, and how earlier curves went on.

At best its loss falls from here on as much as that of any earlier trial did, and the plan then has the best accuracies
of all trials that ended with as high a loss, and of the next lower. Where even that is dominated, the trial ends.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tuner.plan.trial import TrialPlan
from tuner.planner.price import Estimate
from tuner.planner.tail_terms import network_values
from tuner.results.records.trial import TrialRecord, eligible
from tuner.search.setting import Setting

#: So many curves of a rung tell how one may go on.
LEAST_CURVES = 8
#: A trial that is expected to take less from here on is not worth a thought.
LEAST_SECONDS = 1.0
#: A trial may cost so much less than expected.
CHEAPER = 0.8


class Curve(NamedTuple):
    """A plan's loss after each epoch, and what came of it."""

    losses: tuple[float, ...]
    values: Mapping[str, float]


class Outlook:
    """Judges the trials of one study; not those with exits or edits of the tail, whose curves jump, or with folds.

    Nor those that end in a head that is solved for, whose score is not in the loss. Where a study has objectives that
    are not foreseen, or is deterministic, all run to their end: when a request to stop arrives depends on the clock.
    """

    def __init__(self, setting: Setting) -> None:
        self._objectives = [one for one in setting.objectives if not one.domain]  # what has no margin stays out
        self._silent = setting.deterministic or not setting.foreseen
        self._curves: list[Curve] = []
        self._margins: dict[str, float] = {}
        self._plan: TrialPlan | None = None
        self._costs: dict[str, float] = {}
        self._losses: list[float] = []
        self._gave_up = False

    def begin(self, plan: TrialPlan, estimate: Estimate, rung: int, records: Sequence[TrialRecord]) -> None:
        """Watch a trial from its first epoch on."""
        self._curves = [
            Curve(tuple(epoch["loss"] for epoch in record.epochs), record.values)
            for record in records
            if record.rung == rung and eligible(record) and record.state == "done" and record.epochs
        ]
        jumps = plan.traits.changes_shapes or bool(plan.heads.exits)
        self._plan = None if jumps or plan.data.folds or plan.recipe.solve_again else plan
        self._losses, self._gave_up = [], False
        scored = {"local_accuracy": plan.local_scored, "global_accuracy": plan.global_scored}
        # the largest standard error that each accuracy may have on so many samples
        self._margins = {name: 0.5 / math.sqrt(count) for name, count in scored.items() if count}
        costs = {"train_seconds": CHEAPER * estimate.train_seconds, "peak_bytes": CHEAPER * estimate.peak_bytes}
        self._costs = network_values(plan) | costs

    def hopeless(self, loss: float, seconds: float) -> bool:
        """Note the loss and the seconds of an epoch, and return whether the front is out of the trial's reach."""
        if self._plan is None or len(self._losses) >= self._plan.recipe.epochs:  # whatever a backend reports
            return self._gave_up
        self._losses.append(loss)
        if self._gave_up or self._silent or len(self._curves) < LEAST_CURVES:
            return self._gave_up
        epochs = self._plan.recipe.epochs
        left = epochs - len(self._losses)
        if left * seconds < LEAST_SECONDS:
            return False
        hoped = {**optimistic_end(loss, len(self._losses) / epochs, self._curves), **self._costs}
        hoped = {name: value + self._margins.get(name, 0.0) for name, value in hoped.items()}
        self._gave_up = any(
            all(one.loss(curve.values) <= one.loss(hoped) for one in self._objectives) for curve in self._curves
        )
        return self._gave_up

    def explained(self, record: TrialRecord) -> TrialRecord:
        """Return the trial's record, with the reason where it was ended."""
        if not self._gave_up or record.state != "stopped":
            return record
        return replace(record, reason=f"{record.reason}: the front was out of its reach")


def optimistic_end(loss: float, share: float, curves: Sequence[Curve]) -> dict[str, float]:
    """Return the best accuracies that a plan may end with, by its loss after a share of its epochs."""
    falls = [curve.losses[-1] / max(_after(curve.losses, share), 1e-12) for curve in curves]
    least = loss * min([1.0, *falls])
    lower = max((curve.losses[-1] for curve in curves if curve.losses[-1] < least), default=0.0)
    like = [curve.values for curve in curves if curve.losses[-1] >= lower]
    names = ("local_accuracy", "global_accuracy")
    return {name: max(one[name] for one in like) for name in names if name in like[0]}


def _after(losses: Sequence[float], share: float) -> float:
    """Return the loss after a share of the epochs, at least one."""
    return losses[max(0, min(len(losses) - 1, math.ceil(share * len(losses)) - 1))]
