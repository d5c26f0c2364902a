"""Rungs: a plan is first tried on a share of the samples and epochs, and promoted if it does well there.

Asynchronous successive halving for several objectives: MO-ASHA; Schmucker et al. 2021. Ties are broken by contribution
to the hypervolume of the accuracies: by costs alone a plan without use would go up.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.price import price
from tuner.results.records.trial import TrialRecord, eligible
from tuner.results.scores.objectives import Objective
from tuner.results.scores.pareto import Values, area, front
from tuner.search.fill.filling import Filler
from tuner.search.propose.lines import can_continue
from tuner.search.setting import Setting

#: The rung above the top one, on which plans are cross-validated in so many folds.
FINAL, FINAL_FOLDS = -1, 4
#: A rung takes a half of the samples and two thirds of the epochs of the next higher one: a third of its cost.
SAMPLES, EPOCHS = 1 / 2, 2 / 3
#: One in `ETA` of a rung's plans is promoted.
ETA = 3
#: The lowest rung that a study begins with, counted from the top, which is 0; a slow device may make it begin lower.
LOWEST = 3
#: A trial whose training is expected to take less gains nothing from a lower rung: starting it takes about as long.
QUICK_SECONDS = 1.0
#: Trials on a rung from which the search goes on there.
ENOUGH_TRIALS = 5
#: The first plan of all, its features included, may take this share of the time.
FIRST_SHARE = 0.05
#: A limit of fewer trials leaves none for lower rungs.
FEW_TRIALS = 12
#: Of a limit on trials, one in so many is kept for the top rung.
RESERVED = 6
#: A rung of fewer steps says nothing of a plan: it keeps more of its epochs.
LEAST_STEPS = 64
#: Filling the features of the next higher rung may take this share of the time that is left.
FILL_SHARE = 0.25
#: The least number of local samples on a rung: fewer do not tell plans apart.
LEAST_SAMPLES = 128
#: The same in a slice of a device that is slower than it was measured; and the lowest rung that this may lead to.
LEAST_SLICE, MOST_RUNGS = 32, 7
#: A plan goes up at once when less than so many times what that takes is left.
LATE = 1.5
#: Share of the time after which a plan is tried on the top rung, whatever the ranks; and the share of what that takes
#: which is spent on lower rungs before.
FIRST_TOP_SHARE, EXPLORED_SHARE = 1 / 3, 0.2


def at_rung(plan: TrialPlan, rung: int) -> TrialPlan:
    """Return what a plan trains on a rung: fewer samples, of validation too, no folds, and fewer epochs.

    A training that can be continued keeps its epochs: it is first tried with few. On the final rung it is
    cross-validated.
    """
    if not rung:
        return plan
    if rung == FINAL:
        return replace(plan, data=replace(plan.data, folds=FINAL_FOLDS))
    fewer = replace(plan, data=replace(plan.data, share=SAMPLES**rung, folds=0))
    if can_continue(plan):
        return normal_form(fewer)
    steps = math.ceil(fewer.train_samples / plan.recipe.batch_size)
    epochs = max(round(plan.recipe.epochs * EPOCHS**rung), math.ceil(LEAST_STEPS / steps))
    recipe = replace(plan.recipe, epochs=min(plan.recipe.epochs, epochs))
    return normal_form(replace(fewer, recipe=recipe))


def lowest_rung(first: Sequence[TrialPlan], setting: Setting) -> int:
    """Return the rung that plans are first tried on; 0 where the search space asks for one rung only."""
    trials, plan = setting.limits.trials, first[0]
    if not setting.rungs or (trials is not None and trials < FEW_TRIALS):
        return 0
    rung = 0
    while rung < LOWEST and plan.task.local_train * SAMPLES ** (rung + 1) >= LEAST_SAMPLES:
        tried = at_rung(plan, rung)
        training = price(tried, setting.rates).loops_seconds
        filling = tried.read_samples * price(tried, setting.rates).fill_seconds if tried.cached else 0.0
        if training <= QUICK_SECONDS and training + filling <= FIRST_SHARE * setting.seconds_left:
            break
        rung += 1
    return rung


def prepare_slice(filler: Filler, plans: Sequence[TrialPlan], rung: int, within: float) -> int:
    """Fill the store for plans on a rung, or on a lower one whose samples there is time for; return that rung.

    A pass that is stopped shows how slow the device is. What it computed stays; the next slice is one that fits. The
    smallest one takes what it takes, and so does the top rung.
    """
    lower = range(rung + 1, MOST_RUNGS + 1)
    enough = (one for one in lower if plans[0].task.local_train * SAMPLES**one >= LEAST_SLICE)
    rungs = [rung, *enough] if rung else [0]
    while True:
        rung = rungs.pop(0)
        if filler.prepare((at_rung(plan, rung) for plan in plans), within if rungs else math.inf) or not rungs:
            return rung
        fitting = (at for at, lower in enumerate(rungs) if filler.fits(at_rung(plans[0], lower), within))
        rungs = rungs[next(fitting, -1) :]


class Promotion(NamedTuple):
    """A plan to try on a higher rung: the trial that recommends it, and the rung."""

    record: TrialRecord
    rung: int


IsTaken = Callable[[TrialRecord, int], bool]


class Ladder:
    """Decides for one study which plan goes up, and when: by rank, and in time for the top rung before the end.

    Plans are first tried on the rung ``lowest``, counted from the top, which is 0; ``floor`` is the local accuracy that
    a plan needs to go up.
    """

    def __init__(self, setting: Setting, seconds: Callable[[TrialRecord, int], float]) -> None:
        self._setting, self._seconds = setting, seconds
        self.lowest, self.floor = 0, 0.0
        self._known: dict[int, tuple[tuple[int, ...], float, list[TrialRecord]]] = {}

    def climb(self, records: Sequence[TrialRecord]) -> None:
        """Leave the lowest rung for good where the next higher one is as quick, and has trials enough to go on from.

        The first trials decide, so that a resumed study climbs as far. With NSGA-II the search stays: its generations
        compare all new plans.
        """
        while self.lowest and not self._setting.asks_study:
            above = [one.plan for one in records if one.rung == self.lowest - 1 and eligible(one) and one.plan]
            seconds = [price(plan, self._setting.rates).loops_seconds for plan in above[:ENOUGH_TRIALS]]
            if len(seconds) < ENOUGH_TRIALS or median(seconds) > QUICK_SECONDS:
                return
            self.lowest -= 1

    def leave(self, records: Sequence[TrialRecord], fill_seconds: Callable[[int], float]) -> None:
        """Leave the lowest rung for good where a trial ended on it, and there is time to fill the next higher one.

        It is left too where a trial above took longer than what is left: there is no time for another such promotion,
        and on features that are there a head is as quick.
        """
        left = self._setting.seconds_left
        if not math.isfinite(left) or self._setting.asks_study:
            return
        while self.lowest and any(record.rung == self.lowest and eligible(record) for record in records):
            if fill_seconds(self.lowest - 1) > FILL_SHARE * left:
                break
            self.lowest -= 1
        above = [one for one in records if 0 <= one.rung < self.lowest and eligible(one)]
        self.lowest = min((one.rung for one in above if one.spent_seconds > left), default=self.lowest)

    def next(self, records: Sequence[TrialRecord], is_taken: IsTaken = lambda *_: False) -> Promotion | None:
        """Return the plan to promote now, but for those that others try; None where a new one is to be tried."""
        if not self.lowest:
            return None
        return self._before_the_end(records, is_taken) or self._by_rank(records, is_taken)

    def ranked(self, records: Sequence[TrialRecord], rung: int) -> list[TrialRecord]:
        """Return the trials of a rung that may go up, the best first."""
        here = tuple(record.trial for record in records if record.rung == rung)
        if rung not in self._known or self._known[rung][:2] != (here, self.floor):
            objectives, weighed = self._setting.weighed_objectives, self._setting.weighed
            self._known[rung] = here, self.floor, ranked(records, rung, objectives, self.floor, weighed)
        return self._known[rung][2]

    def _by_rank(self, records: Sequence[TrialRecord], is_taken: IsTaken) -> Promotion | None:
        """Return the first plan, from the highest rung down, that is among the best of its rung, one in `ETA`."""
        for rung in range(1, self.lowest + 1):
            best = self.ranked(records, rung)
            tried = _configs_above(records, rung)
            for record in best[: len(best) // ETA]:
                if record.config not in tried and not is_taken(record, rung - 1):
                    return Promotion(record, rung - 1)
        return None

    def _before_the_end(self, records: Sequence[TrialRecord], is_taken: IsTaken) -> Promotion | None:
        """Return the best plan for the highest rung that there is time for, where waiting would miss it."""
        left = self._setting.trying_seconds
        for rung in range(self.lowest):
            tried = _configs_above(records, rung + 1)
            waiting = [
                record
                for below in range(rung + 1, self.lowest + 1)
                for record in self.ranked(records, below)
                if record.config not in tried
            ]
            fitting = (one for one in waiting if self._seconds(one, rung) <= left and not is_taken(one, rung))
            fits = next(fitting, None)
            if fits is not None:
                takes = self._seconds(fits, rung)
                late = left < LATE * takes or self._is_late(records, rung, takes)
                return Promotion(fits, rung) if late else None
        return None

    def _is_late(self, records: Sequence[TrialRecord], rung: int, takes: float) -> bool:
        """Return whether the last trials are left, or enough time has passed without a trial on a rung."""
        limits, end = self._setting.limits, self._setting.end
        run = [record for record in records if record.state != "rejected" and record.same_as is None]
        if limits.trials is not None and limits.trials - len(run) <= max(1, limits.trials // RESERVED):
            return True
        if end is None or limits.time_seconds is None or any(record.rung <= rung for record in run):
            return False
        explored = sum(record.spent_seconds for record in run)
        passed = self._setting.seconds_left < (1 - FIRST_TOP_SHARE) * limits.time_seconds
        return passed or explored > EXPLORED_SHARE * takes


def _configs_above(records: Iterable[TrialRecord], rung: int) -> set[int]:
    """Return the plans that were tried above a rung, by their first trial."""
    return {record.config for record in records if record.rung < rung}


def ranked(
    records: Iterable[TrialRecord],
    rung: int,
    objectives: Sequence[Objective],
    floor: float = 0.0,
    weighed: Callable[[Values], Values] = dict,
) -> list[TrialRecord]:
    """Return the trials of a rung that are within every limit and not below a local accuracy, the best first.

    ``weighed`` returns which of a trial's scores decide.
    """
    within = (record for record in records if record.rung == rung and eligible(record))
    here = {record.trial: record for record in within if record.values.get("local_accuracy", math.inf) >= floor}
    left = {trial: weighed(record.values) for trial, record in here.items()}
    order: list[int] = []
    while left:
        layer = {trial: left[trial] for trial in front(left, objectives)}
        whole = area(layer.values())
        gains = {one: whole - area(layer[other] for other in layer if other != one) for one in layer}
        order += sorted(layer, key=lambda trial: (-gains[trial], objectives[0].loss(layer[trial]), trial))
        left = {trial: values for trial, values in left.items() if trial not in layer}
    return [here[trial] for trial in order]
