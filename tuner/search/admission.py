"""Whether a plan may run, and if not, why not: the one place that refuses."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tuner.backends.extensions import Extensions
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import weight_bytes
from tuner.planner.price import price
from tuner.plugin.host import Host
from tuner.results.records.trial import TrialRecord
from tuner.search.estimate.forecast import MEMORY_LEVEL, TIME_LEVEL, Expected, Forecast
from tuner.search.fill.filling import Filler
from tuner.search.processes.guard import JobLimits
from tuner.search.setting import CLOSING_SECONDS, RUN_RESERVE, Setting
from tuner.store.store import Store, disk_bytes

#: A trial is asked to stop so many times as long before the end as solving and scoring are expected to take.
ENDING_MARGIN = 1.5
#: With each plan that is refused for memory in a row, one that fits less surely may be tried; after so many, one that
#: fits by its estimate. If it does fit, estimates are surer from there on; if not, they rise.
REFUSALS = 10


@dataclass(frozen=True, slots=True)
class Admitted:
    """A plan that may run.

    Attributes:
        expected: What it is expected to cost.
    """

    expected: Expected


@dataclass(frozen=True, slots=True)
class Refused:
    """A plan that is not run.

    Attributes:
        expected: What it would cost.
        reason: Why it is not run, for people.
        constraint: By how much it breaks each limit: log(value / limit); ``support`` where the backend cannot do it.
    """

    expected: Expected
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
        self,
        plan: TrialPlan,
        records: Sequence[TrialRecord],
        full: TrialPlan | None = None,
        due: TrialPlan | None = None,
    ) -> Admitted | Refused:
        """Return the plan's estimate, or why it is not run.

        Args:
            plan: The plan to decide on.
            records: The study's finished trials.
            full: The plan as it is on the top rung, which has to obey the limits too; as given where there is none.
            due: What is still to be trained of it, where it continues an earlier trial.
        """
        expected = self._forecast.expected(plan, self._filler.missing(plan), records, self._filler.pace, due)
        reason = self._unsupported(plan) or _failed_before(plan, records)
        if reason:
            return Refused(expected, reason, {"support": 1.0})
        whole = expected if full in {None, plan} else self._forecast.expected(full, 0, records)
        reasons, constraint = self._over(expected, whole, _caution(records))
        if reasons:
            return Refused(expected, "; ".join(reasons), constraint)
        unfilled = self._filler.refusal(plan)
        if unfilled is not None:
            return Refused(expected, str(unfilled), unfilled.constraint)
        return Admitted(expected)

    def seconds(self, plan: TrialPlan, records: Sequence[TrialRecord]) -> float:
        """Return what a plan would take now: with the features that are stored, at the pace of the last filling."""
        missing = 0 if self._setting.deterministic else self._filler.missing(plan)  # a resumed study knows less of it
        return self._forecast.spend_seconds(plan, missing, records, self._filler.pace)

    def storage_left(self) -> int | None:
        """Return what ``--storage`` leaves for features and new weights next to what the run keeps already."""
        limit = self._setting.limits.storage_bytes
        return None if limit is None else max(0, limit - disk_bytes(self._setting.folder) - RUN_RESERVE)

    def make_room(self, plan: TrialPlan, store: Store) -> None:
        """Hold the store to what ``--storage`` leaves once a plan's weights are written."""
        if (left := self.storage_left()) is not None:
            at_once = 2 if plan.data.folds else 1  # a fold's weights are scored before they are removed
            store.cap_bytes = max(0, left - at_once * weight_bytes(plan))
            store.room(0)

    def _unsupported(self, plan: TrialPlan) -> str | None:
        name = plan.runtime.backend
        if plan.recipe.optimiser in self._barred:
            return f"optimiser {plan.recipe.optimiser!r} failed repeatedly and takes no further part"
        if name not in self._extensions:
            self._extensions[name] = self._host.extensions(name)
        return self._extensions[name].lacking(plan) or self._host.supports(plan)

    def _over(self, now: Expected, whole: Expected, caution: float) -> tuple[list[str], dict[str, float]]:
        """Return which limits a plan breaks, for people and as a constraint.

        Of memory it must be sure that the plan fits; of time, that it does not: a trial that takes a little too long
        costs less than a good plan that was never tried.

        Args:
            now: The plan as it would run now.
            whole: The same on the top rung.
            caution: How sure memory must be: 1 for the interval's end, 0 for the estimate itself.
        """
        limits, reasons, constraint = self._setting.limits, [], {}
        left = self._setting.seconds_left - CLOSING_SECONDS
        spend, train = (
            (now.low.spend_seconds, now.high.spend_seconds),
            (whole.low.train_seconds, whole.high.train_seconds),
        )
        peak, stored = (whole.low.peak_bytes, whole.high.peak_bytes), whole.estimate.storage_bytes
        least = whole.estimate.peak_bytes
        checks = (
            Check("time", *spend, spend[0], left if math.isfinite(left) else None, "s", 1.0, TIME_LEVEL),
            Check("train-time", *train, train[0], limits.train_seconds, "s", 1.0, TIME_LEVEL),
            Check(
                "memory",
                *peak,
                least * (peak[1] / max(1, least)) ** caution,
                limits.memory_bytes,
                "MB",
                1e6,
                MEMORY_LEVEL,
            ),
            Check("storage", stored, stored, stored, self.storage_left(), "MB", 1e6, 1.0),
        )
        for one in checks:
            if one.limit is not None and one.decides > one.limit:
                constraint[one.name] = math.log(one.decides / max(one.limit, 1e-3))
                reasons.append(one.reason(one.limit))
        return reasons, constraint


class Check(NamedTuple):
    """An estimate that is compared with a limit.

    Attributes:
        name: Of the limit.
        low: The estimate's interval begins here ...
        high: ... and ends here.
        decides: The end that is compared.
        limit: What is left; None for no limit.
        unit: For people.
        scale: Of the unit.
        level: Share of measured values within the interval.
    """

    name: str
    low: float
    high: float
    decides: float
    limit: float | None
    unit: str
    scale: float
    level: float

    def reason(self, limit: float) -> str:
        """Return for people by how much the limit is broken."""
        low, high = (f"{value / self.scale:,.3g}" for value in (self.low, self.high))
        needs = f"{low} {self.unit}" if low == high else f"{low} to {high} {self.unit} ({100 * self.level:.0f} %)"
        return f"--{self.name}: needs {needs}, but {limit / self.scale:,.3g} {self.unit} are left"


def trial_limits(setting: Setting, plan: TrialPlan, slower: float = 1.0) -> JobLimits:
    """Return the limits of a trial's job: it is asked to stop in time to be solved and scored before the time is up.

    Args:
        setting: The study's.
        plan: Of the trial.
        slower: How many times as long as by the device's rates it is expected to take.
    """
    end, memory, file = setting.end, setting.limits.memory_bytes, setting.limits.storage_bytes
    if end is None:
        return JobLimits(memory_bytes=memory, file_bytes=file)
    scoring = max(0.5, ENDING_MARGIN * max(1.0, slower) * price(plan, setting.rates).ending_seconds)
    return JobLimits(end - CLOSING_SECONDS - scoring, end - CLOSING_SECONDS / 2, memory, file)


def _caution(records: Sequence[TrialRecord]) -> float:
    """Return how sure memory must be after the last plans: less, the more of them were refused for it in a row."""
    fits = (place for place, one in enumerate(reversed(records)) if "memory" not in _refused(one))
    refused = next(fits, len(records))
    return max(0.0, 1.0 - refused / REFUSALS)


def _refused(record: TrialRecord) -> Mapping[str, float]:
    """Return the limits that a plan was refused for, unrun."""
    return record.constraint if record.state == "rejected" else {}


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
