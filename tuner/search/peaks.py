"""The planner's figures of memory in a study: what a trial's steps will take, known before the trial runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tuner.errors import TunerError
from tuner.plan import TrialPlan
from tuner.planner import cost
from tuner.planner.step import StepPlan
from tuner.results.records import SCORED, TrialRecord
from tuner.search.supervisor import Limits, Supervisor

if TYPE_CHECKING:
    from tuner.search.study import Setting

#: What a trial's process takes beside its steps, until trials have shown it: tracing, code, samples being read; and
#: where the prefix runs before every step, its code and photos too.
BESIDE_BYTES, BESIDE_WITH_PREFIX_BYTES = 48_000_000, 80_000_000
#: A plan whose rough estimate is so many times the limit is refused on that.
SURELY_OVER = 4
LEARNS_FROM = 10


class Peaks:
    """Asks the backend for the planned peak of each form of step, once, where ``--memory`` needs it."""

    def __init__(self, setting: "Setting", supervisor: Supervisor) -> None:
        self._setting = setting
        self._supervisor = supervisor
        self._found: dict[Any, int | None] = {}

    def expected(self, plan: TrialPlan, records: Sequence[TrialRecord]) -> int | None:
        """Return the peak bytes that a trial will measure, by the planner; None where the rough estimate has to do.

        The planner knows the steps. What the process takes beside them is learned: the most that it was in the last
        trials. Of a tail that changes while it trains, the steps are those it starts with; asked only where the rough
        estimate, which is that of its full width, is over the limit.
        """
        limit = self._setting.limits.memory_bytes
        if limit is None or self._setting.deterministic or not (plan.shape or cost.worth_planning(plan)):
            return None
        rough = cost.peak_bytes(plan, self._setting.rates)
        if rough <= limit if plan.shape else rough > SURELY_OVER * limit:
            return None
        planned = self._planned(plan)
        if planned is None:
            return None
        alike = [one for one in records if one.plan is not None and _runs_prefix(one.plan) == _runs_prefix(plan)]
        known = [one for one in map(self._beside, alike) if one is not None][-LEARNS_FROM:]
        return expected_bytes(plan, planned, self._setting.rates, max(known, default=None))

    def _beside(self, record: TrialRecord) -> int | None:
        """Return what a trial measured above its planned peak; None where either is not known, or filling hides it."""
        if record.state not in SCORED or record.plan is None or record.plan.shape or record.same_as is not None:
            return None
        planned = self._found.get(_form(record.plan))
        measured = int(record.values["peak_bytes"])
        filling = self._setting.rates.fill_peak_bytes
        if planned is None or (record.plan.cached and measured <= filling):
            return None
        return max(0, measured - (max(planned, filling) if _runs_prefix(record.plan) else planned))

    def _planned(self, plan: TrialPlan) -> int | None:
        form = _form(plan)
        if form not in self._found:
            try:
                step: StepPlan | None = self._supervisor.call(
                    plan.runtime.backend, "plan_step", {"plan": plan}, Limits(kill_at=self._setting.end)
                )
            except TunerError:
                step = None
            self._found[form] = None if step is None else step.peak_bytes
        return self._found[form]


def expected_bytes(plan: TrialPlan, planned: int, rates: cost.Rates, beside: int | None = None) -> int:
    """Return the peak bytes of a trial whose steps the planned executor runs.

    Args:
        plan: Of the trial.
        planned: Of its steps.
        rates: For what the prefix takes, before every step or while it fills the store.
        beside: What earlier trials took beside their steps; None where none has shown it.
    """
    if _runs_prefix(plan):
        return max(planned, rates.fill_peak_bytes) + (BESIDE_WITH_PREFIX_BYTES if beside is None else beside)
    whole = planned + (BESIDE_BYTES if beside is None else beside)
    return max(whole, rates.fill_peak_bytes) if plan.cached else whole


def _runs_prefix(plan: TrialPlan) -> bool:
    return plan.split > 0 and not plan.cached


def limited(plan: TrialPlan, setting: "Setting") -> TrialPlan:
    """Return the plan with the study's limit on memory, where its tail changes while it trains.

    Not with ``--deterministic``: what a process takes is no function of the plan.
    """
    limit = setting.limits.memory_bytes
    if not plan.shape or limit is None or setting.deterministic:
        return plan
    return replace(plan, runtime=replace(plan.runtime, memory_bytes=limit))


def _form(plan: TrialPlan) -> tuple[Any, ...]:
    """Return what the memory of a plan's step depends on, within a study."""
    recipe = plan.recipe
    samples = min(recipe.batch_size, plan.train_samples)
    decays = recipe.weight_decay > 0
    partial = not recipe.freeze_bn and plan.train_samples % samples != 0
    step = (recipe.optimiser, decays, recipe.freeze_bn, partial)
    return (plan.split, samples, recipe.part_size, plan.shape, plan.runtime, *step)
