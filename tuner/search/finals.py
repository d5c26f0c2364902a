"""The final rung: where few samples validate, the best plans are cross-validated, at the end of a run at the latest.

Eighty samples tell apart what differs by five points or more, and of dozens of trials the luckiest is the best. So time
is reserved to cross-validate the best plan of each structure on all of the user's samples. Where that takes little of
the time it comes first, and the search goes on there: by eighty images of CIFAR-10, a head looks as good as a tail of
twelve blocks, which has ten points more by all 400. Where many samples validate, though of few recordings, trying more
plans brings more: of muscle signals, cross-validating one takes as long as trying six.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import median

from tuner.results.folder import weights_of
from tuner.results.records.judging import LOCAL, comparable
from tuner.results.records.trial import TrialRecord, eligible, plan_of
from tuner.results.scores.pareto import best, front
from tuner.results.scores.picking import front_and_best, training_flops
from tuner.search.propose.checkpoints import Checkpoints, refit_seconds
from tuner.search.propose.lines import structure_of
from tuner.search.rungs import FINAL, FINAL_FOLDS, Promotion
from tuner.search.scoring import Baselines
from tuner.search.setting import Setting
from tuner.task.info import TaskOutline

#: With so many validation samples, no plan is cross-validated.
ENOUGH = 150
#: So many plans are cross-validated at first, and others as long as there is time; one alone is compared with nothing.
FIRST, LEAST = 4, 2
#: More than the least take part at first where all of them take at most this share of the run's time together.
SHARE = 1 / 3
#: Safety factor on what a plan is expected to take, as one that the end of the run cuts off has no score. The second
#: goes without it.
MARGIN = 1.25
#: It begins when less than so many times what it takes is left; time is kept for it where it takes at most this share
#: of what is left.
LATE, KEPT = 1.2, 0.85
#: Plans within so many standard errors of the best take part.
ERRORS = 2
#: It begins after this share of the run's time, if the plans of this share of the structures take at most this share of
#: what is left together. The search then goes on among what is cross-validated while one of these takes at most this
#: share, in the median.
EARLIEST, STRUCTURES, EARLY, GOES_ON = 1 / 4, 1 / 2, 1 / 3, 1 / 6
#: So many times what a refit is expected to take is kept for it, as trials end late; a refit that is expected to take
#: more than this share of the run's time is left to the export.
REFIT_MARGIN, REFIT_SHARE = 1.5, 0.1


def has_finals(task: TaskOutline) -> bool:
    """Return whether so few samples validate that cross-validation pays, and the others can be divided into folds."""
    return task.info.local_val < ENOUGH and task.most_folds >= FINAL_FOLDS


class Finals:
    """Decides for one study what is cross-validated; ``seconds`` returns what a trial's plan takes on a rung."""

    def __init__(
        self, setting: Setting, seconds: Callable[[TrialRecord, int], float], least_known: Callable[[int], float]
    ) -> None:
        self._setting, self._seconds, self._least_known = setting, seconds, least_known

    def next(self, records: Sequence[TrialRecord], left: float, is_over: Callable[[], bool]) -> Promotion | None:
        """Return the plan to cross-validate; None where it is not time for that, or there is none.

        ``is_over`` returns whether nothing else is left to gain.
        """
        if not self._setting.has_finals or not math.isfinite(left):
            return None
        waiting, begun = self._waiting(records)
        if (early := self._early(records, waiting, left)) is not None:
            return Promotion(early, FINAL)
        second = next((one for one in waiting if self._seconds(one, FINAL) < left), None)
        if 0 < begun < LEAST and second is not None:
            return Promotion(second, FINAL)  # what has begun is completed: one alone is compared with nothing
        fitting, total = self._fitting(waiting, left)
        if not fitting or (begun < LEAST and (fitting[0] is not waiting[0] or len(fitting) < LEAST)):
            return None  # without the best plan there is nothing to compare the others with
        return Promotion(fitting[0], FINAL) if LATE * total >= left or is_over() else None

    def go_on(self, records: Sequence[TrialRecord]) -> bool:
        """Return whether the search goes on among what is cross-validated: there is something, and time for more."""
        taken = [one.spent_seconds for one in records if one.rung == FINAL and eligible(one)]
        left = self._setting.trying_seconds
        may_go_on = self._setting.has_finals and math.isfinite(left)
        return may_go_on and len(taken) >= LEAST and median(taken) <= GOES_ON * left

    def _early(self, records: Sequence[TrialRecord], waiting: Sequence[TrialRecord], left: float) -> TrialRecord | None:
        """Return the cheapest of the structures' best plans, where there is time for many of them at once."""
        if left > (1 - EARLIEST) * (self._setting.limits.time_seconds or math.inf):
            return None
        tried = {structure_of(plan_of(one)) for one in records if one.rung == FINAL and one.plan is not None}
        firsts = dict[object, TrialRecord]()
        for one in waiting:
            if structure_of(plan_of(one)) not in tried:
                firsts.setdefault(structure_of(plan_of(one)), one)
        costs = sorted(((self._seconds(one, FINAL), one) for one in firsts.values()), key=lambda pair: pair[0])
        totals = accumulate(takes for takes, _ in costs)
        fitting = [one for (_, one), total in zip(costs, totals, strict=True) if total <= EARLY * left]
        enough = len(fitting) >= max(LEAST, STRUCTURES * len(firsts))
        return fitting[0] if fitting and (tried or enough) else None

    def reserve(self, records: Sequence[TrialRecord], left: float) -> float:
        """Return the seconds to keep for it: what it takes, where there is time for something else too."""
        if not self._setting.has_finals or not math.isfinite(left) or self.go_on(records):
            return 0.0
        waiting, _ = self._waiting(records)
        fitting, total = self._fitting(waiting, left)
        return total if len(fitting) >= LEAST and total <= KEPT * left else 0.0

    def front(self, records: Sequence[TrialRecord], given: Baselines) -> list[int]:
        """Return the trials on the Pareto front, and the one that would be picked now."""
        if self._setting.kind:  # the weights of a study's trials are in several folders
            return front(comparable(records), self._setting.objectives)
        on_front, pick = self._picked(records, given)
        return sorted({*on_front, *(() if pick is None else (pick,))})

    def keep_for_refit(self, records: Sequence[TrialRecord], given: Baselines, checkpoints: Checkpoints) -> None:
        """Keep time at the end of the run to refit what would be picked now, where that takes little of it."""
        setting, limit = self._setting, self._setting.limits.time_seconds
        if not setting.refits or limit is None:
            return
        _, pick = self._picked(records, given)
        record = next((one for one in records if one.trial == pick and one.rung <= 0), None)
        if record is None:
            return
        continues = checkpoints.whole(records, record.config) is not None
        takes = refit_seconds(record, record.values.get("train_seconds", 0.0), continues=continues)
        setting.reserve.seconds = REFIT_MARGIN * takes if takes <= REFIT_SHARE * limit else 0.0

    def _picked(self, records: Sequence[TrialRecord], given: Baselines) -> tuple[list[int], int | None]:
        setting, members = self._setting, comparable(records)
        untouched = next((given.on(one.rung) for one in records if one.trial in members), {})
        return front_and_best(
            records, setting.objectives, lambda trial: weights_of(setting.folder, trial).is_file(), untouched,
            setting.task.most_frequent, setting.limits.forgetting,
        )  # fmt: skip

    def _waiting(self, records: Sequence[TrialRecord]) -> tuple[list[TrialRecord], int]:
        """Return the trials whose plans are still to be cross-validated, the best first, and how many were."""
        begun = {one.config for one in records if one.rung == FINAL}
        return [one for one in self._finalists(records) if one.config not in begun], len(begun)

    def _fitting(self, waiting: Sequence[TrialRecord], left: float) -> tuple[list[TrialRecord], float]:
        """Return the first ones that there is time for together, and what they take."""
        total, chosen = 0.0, list[TrialRecord]()
        share = MARGIN * SHARE * (self._setting.limits.time_seconds or math.inf)
        for one in waiting[: 2 * FIRST]:
            within = left if len(chosen) < LEAST else min(left, share)
            if len(chosen) < FIRST and total + (takes := MARGIN * self._seconds(one, FINAL)) < within:
                total, chosen = total + takes, [*chosen, one]
        return chosen, total

    def _finalists(self, records: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Return the trials of the top rung that may be the best, the pick and the best of each structure first."""
        here = {one.trial: one for one in records if one.rung == 0 and one.same_as is None}
        least, count = self._least_known(0), max(1, self._setting.task.local_val)
        kept = {
            trial: values
            for trial, values in comparable(here.values()).items()
            if LOCAL in values and values.get("global_accuracy", 1.0) >= least
        }
        scores = {trial: values[LOCAL] for trial, values in kept.items()}
        work = {trial: training_flops(one) for trial, one in here.items()}
        first = best(kept, {}, {"local": count}, work=work)
        highest = max(scores.values(), default=0.0)
        wide = highest - ERRORS * math.sqrt(highest * (1 - highest) / count)
        alike = [one for one in scores if scores[one] >= wide or one == first]
        alike.sort(key=lambda one: (-scores[one], -work[one]))
        places, order = dict[object, int](), list[tuple[int, int]]()
        for trial in alike:
            structure = structure_of(plan_of(here[trial]))
            places[structure] = places.get(structure, -1) + 1
            order.append((places[structure], trial))
        return [here[trial] for _, trial in sorted(order, key=lambda one: (one[1] != first, one[0], -scores[one[1]]))]
