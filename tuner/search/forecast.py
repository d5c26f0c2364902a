"""The cost of a plan on this device: from measured rates, corrected by what finished trials cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any

from tuner.backends.base import Session
from tuner.errors import TunerError
from tuner.plan.trial import TrialPlan
from tuner.planner import cost
from tuner.planner.cost import Estimate
from tuner.planner.device import Rates
from tuner.planner.memory.step import StepPlan
from tuner.results.records import SCORED, TrialRecord
from tuner.search.setting import Setting

#: What a trial's process takes in addition to its steps, until trials have shown it: tracing, code, samples being read;
#: and where the prefix runs before every step, its code and photos too.
BESIDE_BYTES, BESIDE_WITH_PREFIX_BYTES = 48_000_000, 80_000_000
#: A plan whose rough estimate is so many times the limit is refused on that.
SURELY_OVER = 4
LEARNS_FROM = 10


class Forecast:
    """Estimates plans of one study.

    Where ``--memory`` is given, the peak is the planner's if the planned executor will run the steps, asked of the
    backend once for each form of step; and that of its start if the tail changes while it trains, which then obeys the
    limit itself.
    """

    def __init__(self, setting: Setting, sessions: Mapping[str, Session]) -> None:
        self._setting, self._sessions = setting, sessions
        self._planned_peaks: dict[Any, int | None] = {}
        self._known_corrections: dict[Any, tuple[float, float]] = {}
        self._corrected_after = (-1, -1)

    def estimate(self, plan: TrialPlan, missing: int, records: Sequence[TrialRecord], pace: float = 1.0) -> Estimate:
        """Return what a plan will cost; see `rough_estimate`. Where memory is limited, the planner may be asked."""
        rough = self.rough_estimate(plan, missing, records, pace)
        peak = None if self._setting.deterministic else self.planned_peak(plan, records)
        return rough if peak is None else replace(rough, peak_bytes=peak)

    def rough_estimate(
        self, plan: TrialPlan, missing: int, records: Sequence[TrialRecord], pace: float = 1.0
    ) -> Estimate:
        """Return what a plan will cost by the rates alone, in no time.

        Args:
            plan: To estimate.
            missing: Samples whose features are not stored yet.
            records: Finished trials, whose measured costs correct the estimate.
            pace: Ratio of the seconds that filling takes now to those expected from the rates.
        """
        if self._setting.deterministic:
            return cost.estimate(plan, self._setting.rates, missing)
        plain = cost.estimate(plan, self._setting.rates)
        filling = missing * pace * cost.fill_seconds(plan, self._setting.rates)
        rough = cost.corrected(plain, *self._corrections(plan, records))
        return replace(rough, spend_seconds=rough.spend_seconds + filling)

    def _corrections(self, plan: TrialPlan, records: Sequence[TrialRecord]) -> tuple[float, float]:
        """Return measured over expected, of seconds and of bytes; computed once after each trial."""
        last = (len(records), records[-1].trial if records else -1)
        if last != self._corrected_after:
            self._corrected_after = last
            self._known_corrections.clear()
        kind, planned = _kind(plan), cost.worth_planning(plan)
        if (kind, planned) not in self._known_corrections:
            alike = [one for one in records if one.plan is not None and _kind(one.plan) == kind]
            same = [one for one in alike if one.plan is not None and cost.worth_planning(one.plan) == planned]
            ratios = median_correction(alike, self._seconds), median_correction(same, self._bytes)
            self._known_corrections[kind, planned] = ratios
        return self._known_corrections[kind, planned]

    def planned_peak(self, plan: TrialPlan, records: Sequence[TrialRecord]) -> int | None:
        """Return the peak bytes that a trial will measure, by the planner; None where the rough estimate has to do.

        The planner knows the steps. What the process takes in addition is learned: the most that it was in the last
        trials. Of a tail that changes while it trains, the steps are those it starts with; asked only where the rough
        estimate, which is that of its full width, is over the limit.
        """
        limit = self._setting.limits.memory_bytes
        if (
            limit is None
            or self._setting.deterministic
            or not (plan.traits.changes_shapes or cost.worth_planning(plan))
        ):
            return None
        rough = cost.peak_bytes(plan, self._setting.rates)
        if rough <= limit if plan.traits.changes_shapes else rough > SURELY_OVER * limit and not plan.shape:
            return None
        planned = self._planned(plan)
        if planned is None:
            return None
        alike = [record for record in records if record.plan and _runs_prefix(record.plan) == _runs_prefix(plan)]
        beside = [value for value in map(self._beside, alike) if value is not None][-LEARNS_FROM:]
        return expected_bytes(plan, planned, self._setting.rates, max(beside, default=None))

    def _planned(self, plan: TrialPlan) -> int | None:
        form = _form(plan)
        if form not in self._planned_peaks:
            try:
                step: StepPlan | None = self._sessions[plan.runtime.backend].plan_step(plan)
            except (TunerError, RuntimeError):  # a lowering may raise anything: the trial will say what
                step = None
            self._planned_peaks[form] = None if step is None else step.peak_bytes
        return self._planned_peaks[form]

    def _beside(self, record: TrialRecord) -> int | None:
        """Return what a trial measured above its planned peak; None where either is unknown, or filling hides it."""
        if record.state not in SCORED or record.plan is None or record.same_as is not None:
            return None
        if record.plan.traits.changes_shapes:
            return None
        planned = self._planned_peaks.get(_form(record.plan))
        measured = int(record.values["peak_bytes"])
        filling = self._setting.rates.fill_peak_bytes
        if planned is None or (record.plan.cached and measured <= filling):
            return None
        return max(0, measured - (max(planned, filling) if _runs_prefix(record.plan) else planned))

    def _seconds(self, record: TrialRecord) -> tuple[float, float] | None:
        """Return measured and expected seconds of a trial."""
        if record.state not in SCORED or record.plan is None:
            return None
        epochs = len(record.epochs) or record.plan.recipe.epochs  # it may have stopped early
        plan = replace(record.plan, recipe=replace(record.plan.recipe, epochs=epochs))
        return record.values["train_seconds"], cost.train_seconds(plan, self._setting.rates)

    def _bytes(self, record: TrialRecord) -> tuple[float, float] | None:
        """Return measured and expected peak bytes of a trial."""
        if record.state not in SCORED or record.plan is None:
            return None
        return record.values["peak_bytes"], float(cost.peak_bytes(record.plan, self._setting.rates))


def expected_bytes(plan: TrialPlan, planned: int, rates: Rates, beside: int | None = None) -> int:
    """Return the peak bytes of a trial whose steps the planned executor runs.

    Args:
        plan: The trial's plan.
        planned: Planned peak of its steps.
        rates: This device's rates: the prefix takes memory too, before every step or while it fills the store.
        beside: Bytes that earlier trials took in addition to their steps; None if there was none.
    """
    if _runs_prefix(plan):
        return max(planned, rates.fill_peak_bytes) + (BESIDE_WITH_PREFIX_BYTES if beside is None else beside)
    whole = planned + (BESIDE_BYTES if beside is None else beside)
    return max(whole, rates.fill_peak_bytes) if plan.cached else whole


def _runs_prefix(plan: TrialPlan) -> bool:
    return plan.split > 0 and not plan.cached


def with_memory_limit(plan: TrialPlan, setting: Setting) -> TrialPlan:
    """Return the plan with the study's limit on memory, where its tail changes while it trains.

    Not with ``--deterministic``: what a process takes is no function of the plan.
    """
    limit = setting.limits.memory_bytes
    if not plan.traits.changes_shapes or limit is None or setting.deterministic:
        return plan
    return replace(plan, runtime=replace(plan.runtime, memory_bytes=limit))


def _form(plan: TrialPlan) -> tuple[Any, ...]:
    """Return what the memory of a plan's step depends on, within a study."""
    recipe = plan.recipe
    samples = min(recipe.batch_size, plan.train_samples)
    decays = recipe.weight_decay > 0
    partial = not recipe.freeze_bn and plan.train_samples % samples != 0
    step = (recipe.optimiser, decays, recipe.freeze_bn, partial)
    terms = tuple((term.kind, term.settings, term.teacher) for term in plan.loss)
    return (plan.split, samples, recipe.part_size, plan.shape, terms, plan.runtime, *step)


def median_correction(
    records: Sequence[TrialRecord], value: Callable[[TrialRecord], tuple[float, float] | None]
) -> float:
    """Return the median of measured over expected, of the last trials; 1 where there are none."""
    known = (value(record) for record in reversed(records) if record.same_as is None)
    last = islice((pair for pair in known if pair is not None), LEARNS_FROM)
    ratios = [measured / expected for measured, expected in last if expected > 0]
    return min(5.0, max(0.2, median(ratios))) if ratios else 1.0


def _kind(plan: TrialPlan) -> tuple[str, bool, tuple[str, ...]]:
    """Return what tells plans apart whose costs are not learned from each other: the backend, caching, tail edits."""
    return plan.runtime.backend, plan.cached, tuple(edit.kind for edit in plan.shape)
