"""Whether a plan may run, and if not, why not: the one place that refuses."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.backends.extensions import Extensions
from tuner.plan.trial import TrialPlan
from tuner.planner.cost import Estimate
from tuner.plugin.host import Host
from tuner.results.records import TrialRecord
from tuner.search.filling import Filler
from tuner.search.forecast import Forecast
from tuner.search.processes.guard import JobLimits
from tuner.search.setting import CLOSING_SECONDS, RUN_RESERVE, Setting
from tuner.store.store import disk_bytes


@dataclass(frozen=True, slots=True)
class Admitted:
    """A plan that may run, with its estimate."""

    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Refused:
    """A plan that is not run.

    Attributes:
        estimate: What it would cost.
        reason: Why it is not run, for people.
        constraint: By how much it breaks each limit: log(value / limit); ``support`` where the backend cannot do it.
    """

    estimate: Estimate
    reason: str
    constraint: Mapping[str, float]


class Admission:
    """Decides for one study.

    Args:
        setting: The study's.
        host: For the backends, and the tail edits that plugins realise on them.
        forecast: Estimates plans.
        filler: Knows what is stored, and which filling passes memory was too small for.
        barred: Names of optimisers that failed too often, among others; more may come.
    """

    def __init__(
        self, setting: Setting, host: Host, forecast: Forecast, filler: Filler, barred: Collection[str] = frozenset()
    ) -> None:
        self._setting, self._host, self._forecast, self._filler = setting, host, forecast, filler
        self._barred = barred
        self._extensions: dict[str, Extensions] = {}

    def admit(
        self, plan: TrialPlan, records: Sequence[TrialRecord], full: TrialPlan | None = None
    ) -> Admitted | Refused:
        """Return the plan's estimate, or why it is not run.

        Args:
            plan: The plan to decide on.
            records: The study's finished trials.
            full: The plan as it is on the top rung, which has to obey the limits too; as given where there is none.
        """
        estimate = self._forecast.estimate(plan, self._filler.missing(plan), records, self._filler.pace)
        reason = self._unsupported(plan) or _failed_before(plan, records)
        if reason:
            return Refused(estimate, reason, {"support": 1.0})
        whole = estimate if full in {None, plan} else self._forecast.estimate(full, 0, records)
        reasons, constraint = self._over(replace(whole, spend_seconds=estimate.spend_seconds))
        if reasons:
            return Refused(estimate, "; ".join(reasons), constraint)
        unfilled = self._filler.refusal(plan)
        if unfilled is not None:
            return Refused(estimate, str(unfilled), unfilled.constraint)
        return Admitted(estimate)

    def seconds(self, plan: TrialPlan, records: Sequence[TrialRecord]) -> float:
        """Return what a plan would take now: with the features that are stored, at the pace of the last filling."""
        missing = 0 if self._setting.deterministic else self._filler.missing(plan)  # a resumed study knows less of it
        return self._forecast.rough_estimate(plan, missing, records, self._filler.pace).spend_seconds

    def storage_left(self) -> int | None:
        """Return what ``--storage`` leaves for features and new weights next to what the run keeps already."""
        limit = self._setting.limits.storage_bytes
        return None if limit is None else max(0, limit - disk_bytes(self._setting.folder) - RUN_RESERVE)

    def _unsupported(self, plan: TrialPlan) -> str | None:
        name = plan.runtime.backend
        if plan.recipe.optimiser in self._barred:
            return f"optimiser {plan.recipe.optimiser!r} failed repeatedly and takes no further part"
        if name not in self._extensions:
            self._extensions[name] = self._host.extensions(name)
        return self._extensions[name].lacking(plan) or self._host.supports(plan)

    def _over(self, estimate: Estimate) -> tuple[list[str], dict[str, float]]:
        """Return which limits an estimate breaks, for people and as a constraint."""
        limits, reasons, constraint = self._setting.limits, [], {}
        left = self._setting.seconds_left - CLOSING_SECONDS
        values = (
            ("time", estimate.spend_seconds, left if math.isfinite(left) else None, "s", 1.0),
            ("train-time", estimate.train_seconds, limits.train_seconds, "s", 1.0),
            ("memory", estimate.peak_bytes, limits.memory_bytes, "MB", 1e6),
            ("storage", estimate.storage_bytes, self.storage_left(), "MB", 1e6),
        )
        for name, value, limit, unit, scale in values:
            if limit is not None and value > limit:
                constraint[name] = math.log(value / max(limit, 1e-3))
                reasons.append(f"--{name}: needs {value / scale:,.3g} {unit}, but {limit / scale:,.3g} {unit} are left")
        return reasons, constraint


def trial_limits(setting: Setting, estimate: Estimate) -> JobLimits:
    """Return the limits of a trial's job: it is asked to stop in time to be scored before the time is up."""
    end, memory = setting.end, setting.limits.memory_bytes
    if end is None:
        return JobLimits(memory_bytes=memory)
    scoring = max(0.5, 0.5 * (estimate.spend_seconds - estimate.train_seconds))
    return JobLimits(end - CLOSING_SECONDS - scoring, end - CLOSING_SECONDS / 2, memory)


def _failed_before(plan: TrialPlan, records: Sequence[TrialRecord]) -> str:
    """Return why a plan's backend could not train a part of the plan's tail in an earlier trial; empty where it could.

    What a backend lacks for one tail it lacks for every tail that holds it.
    """
    for record in records:
        known = record.plan
        if known is None or "support" not in record.constraint or not record.spent_seconds:
            continue  # what was refused unrun is known by the plan itself
        alike = known.runtime.backend == plan.runtime.backend and known.shape == plan.shape
        if alike and known.recipe.freeze_bn == plan.recipe.freeze_bn and known.split >= plan.split:
            return record.reason
    return ""
