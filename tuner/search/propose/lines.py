"""What trials have in common: a *structure* is what a plan edits and where it cuts the model; a *line* is one training.

The trials of a line differ in their epochs alone.
"""

import math
from dataclasses import dataclass, replace

from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import TrialRecord, plan_of

#: What twice the training may leave of a line's errors at best, and as expected of one that was not continued yet.
AT_BEST, UNKNOWN_PACE = 0.5, 0.55
#: That is so of tails with at least this share of the network's FLOPs; the shallower one is, the less it learns by
#: longer training (clothing, from two to four epochs: with 2 blocks all of the errors stay, with 3 87 %, with 4 74 %).
LEARNS = 0.35

Structure = tuple[int, int, tuple[str, ...], str, bool]


def structure_of(plan: TrialPlan) -> Structure:
    """Return a plan's input size and cut, the kinds of what plugins add, its exits, and whether it solves."""
    added = [edit.kind for edit in plan.shape] + [term.kind for term in plan.loss]
    added += [change.kind for change in plan.data.batches]
    return plan.size, plan.split, tuple(added), plan.heads.mode, plan.traits.solves


def is_head(plan: TrialPlan) -> bool:
    """Return whether a plan comes to a head that is solved for on the given features, whatever trains before."""
    is_plain = not plan.shape and not plan.heads.exits
    return plan.traits.solves or (plan.trainable == 1 and plan.recipe.solve_again and is_plain)


def can_continue(plan: TrialPlan) -> bool:
    """Return whether a plan's training can be continued by one of more epochs; not where folds judge it."""
    return is_lengthened(plan) and not plan.data.folds


def is_lengthened(plan: TrialPlan) -> bool:
    """Return whether a plan's training is tried with few epochs first, and then with more."""
    is_plain = not plan.traits.changes_shapes and not plan.traits.solves and not plan.heads.exits
    return is_plain and plan.recipe.continues and not plan.recipe.patience


def has_siblings(plan: TrialPlan) -> bool:
    """Return whether there are plans that share its training: other settings of what edits do when training ends."""
    is_plain = not plan.traits.changes_shapes and not plan.traits.solves and not plan.heads.exits
    return is_plain and bool(plan.traits.after_training) and not plan.recipe.patience and not plan.data.folds


def are_siblings(plan: TrialPlan, other: TrialPlan) -> bool:
    """Return whether two plans train the same, and differ in what edits do when training ends."""
    lengths = ((one.recipe.epochs, one.data.share, one.data.refit) for one in (plan, other))
    return has_siblings(plan) and plan.shape != other.shape and len({*lengths}) == 1 and plan.line() == other.line()


def line_of(plan: TrialPlan) -> str:
    """Return what the plans of a line have in common, however they are judged; siblings are of different lines."""
    line = replace(plan, data=replace(plan.data, folds=0)).line()
    return f"{line} {[edit.settings for edit in plan.shape]}" if has_siblings(plan) else line


@dataclass(frozen=True, slots=True)
class Line:
    """One training on one rung: its trials, by their epochs."""

    records: tuple[TrialRecord, ...]

    @property
    def last(self) -> TrialRecord:
        """The trial that trained longest."""
        return self.records[-1]

    @property
    def epochs(self) -> int:
        """Number of epochs of the longest training."""
        return plan_of(self.last).recipe.epochs

    @property
    def continued(self) -> list[TrialRecord]:
        """The trials that trained for longer than the first one."""
        least = plan_of(min(self.records, key=lambda one: one.trial)).recipe.epochs
        return [one for one in self.records if plan_of(one).recipe.epochs > least]

    @property
    def stalled(self) -> int:
        """How many of the last trials had no better local accuracy than the one before."""
        scores = [record.values.get("local_accuracy", 0.0) for record in self.records]
        count = 0
        while count + 1 < len(scores) and scores[-1 - count] <= scores[-2 - count]:
            count += 1
        return count

    @property
    def pace(self) -> float:
        """What twice the training is expected to leave of its local errors: as the last time, at least `AT_BEST`."""
        if len(self.records) == 1:
            plan = plan_of(self.last)
            return 1.0 - (1.0 - UNKNOWN_PACE) * min(1.0, plan.model.share(plan.trainable) / LEARNS)
        before, after = self.records[-2:]
        errors = [1.0 - one.values.get("local_accuracy", 0.0) for one in (before, after)]
        doublings = math.log2(plan_of(after).recipe.epochs / plan_of(before).recipe.epochs)
        if errors[0] <= 0 or doublings <= 0:
            return 1.0
        return min(1.0, max(AT_BEST, math.pow(errors[1] / errors[0], 1 / doublings)))
