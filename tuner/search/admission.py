"""Whether a plan may run, and if not, why not: the one place that refuses."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from tuner.backends.extensions import Extensions
from tuner.plan.parts import Scalar, Stage, settings_of
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.data_terms import weight_bytes
from tuner.planner.price import price
from tuner.plugin.compose import Composed
from tuner.plugin.host import Host
from tuner.plugin.knobs import Choice, is_legal
from tuner.results.records.trial import TrialRecord
from tuner.search.estimate.forecast import MEMORY_LEVEL, TIME_LEVEL, Expected, Forecast
from tuner.search.fill.filling import Filler
from tuner.search.processes.guard import JobLimits
from tuner.search.setting import CLOSING_SECONDS, RUN_RESERVE, Setting
from tuner.store.store import Store, disk_bytes
from tuner.units import format_limit

#: A trial is asked to stop so many times as long before the end as solving and scoring are expected to take.
ENDING_MARGIN = 1.5
#: With each plan that is refused for memory in a row, one that fits less surely may be tried; after so many, one that
#: fits by its estimate. If it does fit, estimates are surer from there on; if not, they rise.
REFUSALS = 10
BACKEND = "runtime.backend"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a plan may run: what it is expected to cost, and the reason why it is not run, empty where it may.

    ``constraint`` has by how much it breaks each limit, log(value / limit); ``support`` where the backend cannot do it.
    """

    expected: Expected
    reason: str = ""
    constraint: Mapping[str, float] = field(default_factory=dict)

    @property
    def admits(self) -> bool:
        """Whether the plan may run."""
        return not self.reason


def runnable(
    composed: Composed,
    without: Callable[..., Composed],
    shared: Collection[str],
    reason: Callable[[TrialPlan], str | None],
) -> Composed:
    """Return a drawn plan as a backend can carry it out, where there is a way: what cannot be is not tried in vain.

    A setting that is in the way has its default, or another backend of the search space takes over; else a strategy
    takes no part. What a knob offers must not depend on other knobs, so that the sampler cannot be told before.

    Args:
        composed: The plan as it was drawn.
        without: Composes it without some strategies.
        shared: Names of the strategies that share their stage with others: these may be left out.
        reason: Returns why a backend cannot carry a plan out, or None.
    """
    if (why := reason(composed.plan)) is None:
        return composed
    names = [name for name in reversed(composed.changed) if name in shared]
    left_out = (without(*some) for some in (*((name,) for name in names), names))
    for one in chain((composed,), left_out):
        knob = one.knobs.get(BACKEND)
        others = map(str, knob.options) if isinstance(knob, Choice) else ()
        for backend in dict.fromkeys([one.plan.runtime.backend, *others]):
            plan = replace(one.plan, runtime=replace(one.plan.runtime, backend=backend))
            for own in _plainer(plan, one):
                if reason(own) is None:
                    note = _note(composed, one, own, why)
                    # all that was drawn is kept: from the same values the same plan is composed again
                    return replace(one, plan=own, values=composed.values, knobs=composed.knobs, notes=(note,))
    return composed


def _plainer(plan: TrialPlan, composed: Composed) -> Iterator[TrialPlan]:
    """Yield a plan, and the same with settings at their defaults that not everything can be combined with.

    A setting stays where the search space does not leave its knob the default.
    """
    yield plan
    plain: Mapping[str, Mapping[str, Scalar]] = {
        "recipe": {"micro_batches": 1, "batch_size": max(2, plan.recipe.batch_size)},
        "data": {"weight": 1.0, "balance": False},
        "heads": {"joint": 0.0},
    }
    changed = dict[str, Any]()
    for stage, settings in plain.items():
        part: Any = getattr(plan, stage)
        free = {name: value for name, value in settings.items() if _is_free(composed, name, getattr(part, name), value)}
        changed[stage] = replace(part, **free)
    for stages in (*((stage,) for stage in plain), plain):
        yield normal_form(replace(plan, **{stage: changed[stage] for stage in stages}))


def _is_free(composed: Composed, name: str, drawn: Scalar, value: Scalar) -> bool:
    """Return whether the knob that a setting was drawn from, if there is one, may have another value."""
    for full, knob in composed.knobs.items():
        if full.rpartition(".")[2] == name and composed.values[full] == drawn:
            return is_legal(knob.legal or knob if isinstance(knob, Choice) else knob, value)
    return True


def _note(drawn: Composed, one: Composed, plan: TrialPlan, why: str) -> str:
    """Return how a plan differs from what was drawn, where ``one`` has left strategies out, and why."""
    changes = [f"without {name}" for name in drawn.changed if name not in one.changed]
    for stage in (Stage.DATA, Stage.HEADS, Stage.RECIPE, Stage.RUNTIME):
        before, after = (settings_of(getattr(own, stage.value)) for own in (one.plan, plan))
        names = [name for name in {**after, **before} if after.get(name) != before.get(name)]
        changes += [f"{stage.value}.{name} {after.get(name)} instead of {before.get(name)}" for name in names]
    return f"changed from what was drawn: {', '.join(changes)}; else {why}"


class Admission:
    """Decides for one study; ``barred`` has the names of optimisers that failed too often, and may grow."""

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
    ) -> Decision:
        """Return the plan's estimate, and why it is not run, if it is not.

        On the top rung the plan is ``full``, which has to obey the limits too; of one that continues a trial, ``due``
        is still to be trained.
        """
        expected = self._forecast.expected(plan, self._filler.missing(plan), records, self._filler.pace, due)
        if reason := self.unsupported(plan) or _failed_before(plan, records):
            return Decision(expected, reason, {"support": 1.0})
        whole = expected if full in {None, plan} else self._forecast.expected(full, 0, records)
        reasons, constraint = self._over(expected, whole, _caution(records))
        if reasons:
            return Decision(expected, "; ".join(reasons), constraint)
        unfilled = self._filler.refusal(plan)
        return Decision(expected) if unfilled is None else Decision(expected, str(unfilled), unfilled.constraint)

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

    def unsupported(self, plan: TrialPlan) -> str | None:
        """Return why a plan's backend cannot carry it out, or None."""
        name = plan.runtime.backend
        if plan.recipe.optimiser in self._barred:
            return f"optimiser {plan.recipe.optimiser!r} failed repeatedly and takes no further part"
        return self._added(name).lacking(plan) or self._host.supports(plan)

    def avoidable(self, plan: TrialPlan) -> str | None:
        """Return why a plan's backend cannot carry it out; None where it can, and for what no backend can."""
        if all(self._added(name).lacking(plan) for name in self._host.backends):
            return None  # something is missing: it is refused, which says what
        return self.unsupported(plan)

    def _added(self, name: str) -> Extensions:
        if name not in self._extensions:
            self._extensions[name] = self._host.extensions(name)
        return self._extensions[name]

    def _over(self, now: Expected, whole: Expected, caution: float) -> tuple[list[str], dict[str, float]]:
        """Return which limits a plan breaks as it would run now, or as a whole, for people and as a constraint.

        Of memory it must be sure that the plan fits: with caution 1 by the interval's end, with 0 by the estimate. Of
        time it must be sure that it does not: a good plan that was never tried costs more than a trial that takes long.
        """
        limits, reasons, constraint = self._setting.limits, list[str](), dict[str, float]()

        def check(name: str, low: float, high: float, limit: float | None, decides: float, level: float = 1.0) -> None:
            if limit is None or decides <= limit:
                return
            constraint[name] = math.log(decides / max(limit, 1e-3))
            scale, unit = (1.0, "s") if name.endswith("time") else (1e6, "MB")
            first, last, left = (f"{value / scale:,.3g}" for value in (low, high, limit))
            needs = f"{first} {unit}" if first == last else f"{first} to {last} {unit} ({100 * level:.0f} % interval)"
            has = f"{format_limit(int(limit))} are allowed" if name == "memory" else f"{left} {unit} are left"
            reserved = str(self._setting.reserve) if name == "time" else ""
            has = has if limit > 0 else reserved or "nothing is left"
            reasons.append(f"--{name}: needs {needs}, but {has}")

        least, stored = whole.estimate.peak_bytes, whole.estimate.storage_bytes
        spend, train, peak = now.low.spend_seconds, whole.low.train_seconds, whole.high.peak_bytes
        sure = least * (peak / max(1, least)) ** caution
        left = self._setting.trying_seconds
        check("time", spend, now.high.spend_seconds, left, spend, TIME_LEVEL)
        check("train-time", train, whole.high.train_seconds, limits.train_seconds, train, TIME_LEVEL)
        check("memory", whole.low.peak_bytes, peak, limits.memory_bytes, sure, MEMORY_LEVEL)
        check("storage", stored, stored, self.storage_left(), stored)
        return reasons, constraint


def trial_limits(setting: Setting, plan: TrialPlan, slower: float = 1.0) -> JobLimits:
    """Return the limits of a trial's job: it is asked to stop in time to be solved and scored before the time is up.

    What is cross-validated says nothing when it is stopped, so it may use the time of the refit. ``slower`` says how
    many times as long as by the device's rates it is expected to take.
    """
    end, memory, file = setting.end, setting.limits.memory_bytes, setting.limits.storage_bytes
    if end is None:
        return JobLimits(memory_bytes=memory, file_bytes=file)
    scoring = max(0.5, ENDING_MARGIN * max(1.0, slower) * price(plan, setting.rates).ending_seconds)
    kept = 0.0 if plan.data.folds else setting.reserve.seconds
    return JobLimits(end - CLOSING_SECONDS - scoring - kept, end - CLOSING_SECONDS / 2, memory, file)


def _caution(records: Sequence[TrialRecord]) -> float:
    """Return how sure memory must be after the last plans: less, the more of them were refused for it in a row."""
    refused = 0
    for record in reversed(records):
        if record.state != "rejected" or "memory" not in record.constraint:
            break
        refused += 1
    return max(0.0, 1.0 - refused / REFUSALS)


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
