"""From how a trial ended to its record: what it measured, which limit it broke, and by how much."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.errors import TunerError
from tuner.plan import TrialPlan
from tuner.planner import cost
from tuner.results.records import Outcome, State, TrialRecord
from tuner.search.filling import UnfilledError
from tuner.search.jobs import Failure
from tuner.search.supervisor import Ended

if TYPE_CHECKING:
    from tuner.search.study import Setting


def judged(setting: "Setting", base: TrialRecord, ended: Ended, fill_seconds: float) -> TrialRecord:
    """Return the record of a trial that was run.

    Args:
        setting: Of the study.
        base: What is known of the trial without its end.
        ended: How its job ended.
        fill_seconds: To fill one record at the plan's cut.

    Raises:
        KeyboardInterrupt: The user ended it: it has no record, and is taken up again by a resumed run.
    """
    limits = setting.limits
    if ended.verdict == "interrupted":
        raise KeyboardInterrupt
    if ended.verdict == "result" and isinstance(ended.value, Outcome):
        return scored(setting, base, ended.value, fill_seconds)
    if ended.verdict == "memory" and limits.memory_bytes:
        reason = f"--memory: took {ended.most_bytes / 1e6:,.0f} MB of {limits.memory_bytes / 1e6:,.0f} MB"
        over = math.log(ended.most_bytes / limits.memory_bytes)
        return replace(base, state="killed", reason=reason, constraint={"memory": over})
    if ended.verdict == "deadline":
        reason = "--time: it did not end before the time was up"
        return replace(base, state="killed", reason=reason, constraint={"time": 0.1})
    if isinstance(ended.value, Failure) and ended.value.unsupported:
        return replace(base, state="rejected", reason=ended.value.text, constraint={"support": 1.0})
    if isinstance(ended.value, Failure):
        notes = (ended.value.trace,) if ended.value.trace else ()
        return replace(base, reason=ended.value.text, notes=notes, constraint={"failed": 1.0})
    reason = f"its process ended with exit code {ended.value}; the system may have run out of memory"
    return replace(base, reason=reason, constraint={"failed": 1.0})


def unsupported(plan: TrialPlan, records: Sequence[TrialRecord]) -> str:
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


def scored(setting: "Setting", base: TrialRecord, outcome: Outcome, fill_seconds: float) -> TrialRecord:
    """Return the record of a trial that measured something: its costs on an empty store, beside every limit."""
    values = dict(outcome.values)
    plan = base.plan
    if plan is None:
        raise ValueError("an outcome needs a plan")
    whole = float(cost.mean_flops(plan))
    values.setdefault("mean_flops", whole)
    if setting.deterministic:
        values["mean_latency_seconds"] = values["mean_flops"] / cost.NOMINAL_FLOPS
    elif setting.rates.latency_seconds:  # a trial measures its share of the whole, not the moment it ran in
        share = values.get("mean_latency_seconds", 1.0) / values.get("whole_latency_seconds", 1.0)
        values["mean_latency_seconds"] = share * setting.rates.latency_seconds
    if setting.deterministic:
        values["train_seconds"] = cost.train_seconds(plan, setting.rates)
        values["peak_bytes"] = float(cost.peak_bytes(plan, setting.rates))
    elif plan.cached:
        values["train_seconds"] += plan.train_samples * fill_seconds
        values["peak_bytes"] = max(values["peak_bytes"], float(setting.rates.fill_peak_bytes))
    missing = [one.name for one in setting.objectives if not math.isfinite(values.get(one.name, math.nan))]
    if missing:
        return replace(base, reason=f"it gave no finite value of {', '.join(missing)}", constraint={"failed": 1.0})
    state: State = "stopped" if outcome.stopped else "done"
    constraint = {}
    limits = setting.limits
    for name, value, limit in (
        ("train-time", values["train_seconds"], limits.train_seconds),
        ("memory", values["peak_bytes"], limits.memory_bytes),
    ):
        if limit is not None:
            constraint[name] = math.log(max(value, 1e-3) / limit)
    return replace(
        base,
        state=state,
        values=values,
        reason=outcome.stopped,
        epochs=outcome.epochs,
        notes=outcome.notes,
        constraint=constraint,
    )


def unfilled(base: TrialRecord, error: TunerError) -> TrialRecord:
    """Record that a plan's features could not be computed: refused for a limit, failed for all else."""
    if isinstance(error, UnfilledError):
        return replace(base, state="rejected", reason=str(error), constraint=error.constraint)
    line, _, trace = str(error).partition("\n")
    return replace(base, reason=line, notes=(trace,) if trace else (), constraint={"failed": 1.0})
