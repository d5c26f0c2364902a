"""Checkpoints of a run's trials: which one a plan continues, what is still due of it, and which are kept."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.backends.base import CHECKPOINT
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import weight_bytes
from tuner.results.records.trial import HEAD_SOLVED, SCORED, TrialRecord, plan_of
from tuner.search.propose.lines import are_siblings, can_continue, has_siblings, structure_of
from tuner.training.schedule import DECAY_SHARE, epochs_done

#: A checkpoint takes about so many times the bytes of the weights: with the two means that Adam keeps of gradients.
COPIES = 3
#: A checkpoint may take this share of what ``--storage`` leaves.
STORAGE_SHARE = 0.1
#: To solve for the head again, and to score, takes about so many epochs.
ENDING_EPOCHS = 0.75


def epochs_left(plan: TrialPlan, before: TrialPlan) -> int:
    """Return how many epochs are left of a plan that continues another one's training."""
    stable = 1 - DECAY_SHARE if plan.recipe.schedule == "wsd" else 1.0  # it continues from before the decay
    done, epochs = math.floor(stable * before.recipe.epochs), plan.recipe.epochs
    if are_siblings(plan, before):
        return epochs - done
    return epochs - epochs_done(done, before.train_samples, plan.train_samples, epochs)


def refit_plan(record: TrialRecord) -> TrialPlan:
    """Return what a trial's refit trains: on all samples, as many epochs in all, with the head that the trial kept."""
    epochs = max((int(entry["epoch"]) for entry in record.epochs), default=1)
    return plan_of(record).refitted(epochs, solve_again=bool(record.values.get(HEAD_SOLVED)))


def refit_seconds(record: TrialRecord, taken: float, *, continues: bool) -> float:
    """Return what a trial's refit is expected to take: for each sample as long as the training, which took `taken`."""
    before, again = plan_of(record).trainings[0], refit_plan(record)
    if continues:
        epochs = again.recipe.epochs
        done = replace(before, recipe=replace(before.recipe, epochs=epochs))
        taken *= (epochs_left(again.trainings[0], done) + ENDING_EPOCHS) / epochs
    return taken * again.train_samples / max(1, before.train_samples)


class Checkpoints:
    """Those of one run's folder, next to its trials' weights."""

    def __init__(self, weights: Callable[[int], Path]) -> None:
        self._weights = weights
        self._of: dict[str, TrialRecord] = {}

    def ended(self, record: TrialRecord) -> None:
        """Note a trial that ended; a checkpoint that nobody may continue is removed."""
        path, plan = self._path(record), record.plan
        if plan is not None and record.state in SCORED and _may_continue(plan) and path.exists():
            self._of[plan.line()] = record
        else:
            path.unlink(missing_ok=True)

    def due(self, plan: TrialPlan) -> TrialPlan | None:
        """Return what is still to be trained of a plan that continues a trial; None where all of it is."""
        record = self._continued(plan)
        if record is None or record.plan is None:
            return None
        return replace(plan, recipe=replace(plan.recipe, epochs=epochs_left(plan, record.plan)))

    def earlier(self, plan: TrialPlan) -> Path | None:
        """Return the checkpoint that a plan's trial continues; None where it starts anew."""
        record = self._continued(plan)
        return None if record is None else self._path(record)

    def whole(self, records: Sequence[TrialRecord], config: int | None) -> Path | None:
        """Return the checkpoint of the trial whose plan is cross-validated: its training on all samples."""
        paths = (self._path(one) for one in records if one.config == config and one.rung == 0)
        return next((path for path in paths if path.exists()), None)

    def due_folds(self, records: Sequence[TrialRecord], plan: TrialPlan, config: int) -> TrialPlan | None:
        """Return what is still to be trained of a plan that is cross-validated: the folds, by fewer epochs of all."""
        if self.whole(records, config) is None:
            return None
        folds = plan.data.folds  # each trains on all but one part: together as many samples as `folds` - 1 trainings
        epochs = math.ceil(plan.recipe.epochs * (folds - 1) / folds)
        return replace(plan, recipe=replace(plan.recipe, epochs=epochs))

    def has_room(self, plan: TrialPlan, storage_left: int | None) -> bool:
        """Return whether a plan's trial may leave a checkpoint, by what ``--storage`` leaves; siblings share one."""
        fits = storage_left is None or COPIES * weight_bytes(plan) <= STORAGE_SHARE * storage_left
        record = self._continued(plan)
        return fits and _may_continue(plan) and not (record and record.plan and are_siblings(plan, record.plan))

    def has_siblings(self, record: TrialRecord) -> bool:
        """Return whether other plans may share the training of a trial, which has just ended."""
        own = record.plan is not None and record.state == "done" and has_siblings(record.plan)
        return own and self._of.get(plan_of(record).line()) is record

    def prune(self, records: Sequence[TrialRecord], front: Collection[int]) -> None:
        """Remove the checkpoints of trials whose plans are neither on the front nor the best of their structure."""
        best: dict[object, TrialRecord] = {}
        for record in records:
            if record.plan is None or record.state not in SCORED:
                continue
            at = structure_of(record.plan), record.rung
            if at not in best or _accuracy(record) >= _accuracy(best[at]):
                best[at] = record
        on_front = {record.config for record in records if record.trial in front}  # cross-validated on another rung
        kept = {record.trial for record in best.values()} | {one.trial for one in records if one.config in on_front}
        latest = records[-1].plan.line() if records and records[-1].plan else ""  # its siblings are tried next
        for line, record in list(self._of.items()):
            if record.trial not in kept and (line != latest or not has_siblings(plan_of(record))):
                self._path(record).unlink(missing_ok=True)
                del self._of[line]

    def _continued(self, plan: TrialPlan) -> TrialRecord | None:
        """Return the trial that a plan continues: of its line, of fewer epochs, on no more samples; or a sibling."""
        if not _may_continue(plan) or not self._of:
            return None
        record = self._of.get(plan.line())
        if record is None or record.plan is None or not self._path(record).exists():
            return None
        if are_siblings(plan, record.plan):
            return record if record.state == "done" else None
        fewer = record.plan.recipe.epochs < plan.recipe.epochs or record.plan.data.share < plan.data.share
        return record if can_continue(plan) and fewer and record.plan.data.share <= plan.data.share else None

    def _path(self, record: TrialRecord) -> Path:
        return self._weights(record.trial).with_name(CHECKPOINT)


def _may_continue(plan: TrialPlan) -> bool:
    """Return whether a trial may go on from another one's checkpoint, and leave one."""
    return can_continue(plan) or has_siblings(plan)


def _accuracy(record: TrialRecord) -> float:
    return record.values.get("local_accuracy", 0.0)
