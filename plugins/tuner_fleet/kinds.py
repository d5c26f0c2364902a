"""What a trial says to other kinds of devices: accuracies as they are, costs translated.

What a trial took on one kind is translated to another by the ratio of the two estimates of its plan, which keeps what
the trial showed of the estimates' error. A device may have been busy while it was measured, so each kind's estimates
are corrected by what its own trials took. Devices that differ in ``--memory`` alone are two kinds of equal speed.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

from tuner.planner.price import Estimate, price
from tuner.results.folder import RunInfo
from tuner.results.kinds import COST_LIMITS, Kind, cost_constraints
from tuner.results.records.config import Budget
from tuner.results.records.trial import SCORED, TrialRecord


def seen_by_its_kind(info: RunInfo, records: Iterable[TrialRecord]) -> tuple[RunInfo, tuple[TrialRecord, ...]]:
    """Return a run of a shared study as the kind of device whose costs it shows sees it: for ``tuner.kinds``."""
    records = tuple(records)
    if info.kind in info.kinds:
        limits = replace(info.config.limits, memory_bytes=info.kinds[info.kind].device.trial_bytes)
        info = replace(info, config=replace(info.config, limits=limits))
    info = replace(info, kinds=paced(info.kinds, records))
    seen = (as_seen(one, info.kind, info.kinds, info.config.limits) for one in records)
    return info, tuple(one for one in seen if one is not None)


def paced(kinds: Mapping[str, Kind], records: Iterable[TrialRecord]) -> dict[str, Kind]:
    """Return kinds with their pace: the median of their trials, and of the median of all kinds' trials."""
    errors: dict[str, list[float]] = {kind.device.name: [] for kind in kinds.values()}
    for record in records:
        plan, kind = record.plan, kinds.get(record.kind)
        taken = record.values.get("train_seconds", 0.0)
        if kind is None or plan is None or record.same_as is not None or not 0 < taken < math.inf:
            continue
        run = replace(plan, recipe=replace(plan.recipe, epochs=len(record.epochs) or plan.recipe.epochs))
        measured = _measured(kind, kinds)
        expected = price(run, measured.rates).train_seconds
        if 0 < expected < math.inf:  # what a study says of a kind may be damaged
            errors[measured.device.name].append(math.log(taken / expected))
    common = median([error for found in errors.values() for error in found] or [0.0])
    paces = {name: math.exp(median([common, *found])) for name, found in errors.items()}
    return {name: replace(kind, pace=paces[kind.device.name]) for name, kind in kinds.items()}


def as_seen(record: TrialRecord, own: str, kinds: Mapping[str, Kind], limits: Budget) -> TrialRecord | None:
    """Return what a trial on any kind says to a device of the kind called `own`: with costs as they are expected there.

    A record of the same kind is as it is; one of a kind that is as fast has the own kind's name. None where it says
    nothing there: it was refused for what the other kind has or lacks, its tail grew within another ``--memory``, or
    nothing is known of the other kind.
    """
    if record.kind == own or own not in kinds:
        return record
    if record.kind not in kinds or record.state in {"rejected", "killed"}:
        return None
    if record.plan is None or record.state not in SCORED:
        return record
    here, there = kinds[own].device, kinds[record.kind].device
    if record.plan.traits.changes_shapes and here.trial_bytes != there.trial_bytes:
        return None
    plan = replace(record.plan, runtime=replace(record.plan.runtime, threads=here.cores))
    mine, theirs = (_measured(kinds[name], kinds) for name in (own, record.kind))
    nbytes = price(plan, mine.rates).peak_bytes / max(1, price(record.plan, theirs.rates).peak_bytes)
    seconds = latency = 1.0
    if not (alike := here.is_as_fast_as(there)):
        taken = [one.pace * price(of, one.rates).train_seconds for one, of in ((mine, plan), (theirs, record.plan))]
        seconds = taken[0] / max(1e-9, taken[1])
        latency = mine.rates.latency_seconds / theirs.rates.latency_seconds if theirs.rates.latency_seconds else 1.0
    limits = replace(limits, memory_bytes=here.trial_bytes)
    ratios = {"train_seconds": seconds, "peak_bytes": nbytes, "mean_latency_seconds": latency or 1.0}
    values = {name: value * ratios.get(name, 1.0) for name, value in record.values.items()}
    constraint = {name: value for name, value in record.constraint.items() if name not in COST_LIMITS}
    return replace(
        record,
        kind=own if alike else record.kind,
        plan=plan,
        values=values,
        constraint=constraint | cost_constraints(values, limits),
        estimate=_scaled(record.estimate, seconds, nbytes),
        uncalibrated=_scaled(record.uncalibrated, seconds, nbytes),
    )


def _measured(kind: Kind, kinds: Mapping[str, Kind]) -> Kind:
    """Return a kind; where it could not measure all its rates, one as fast that could."""
    alike = (one for one in kinds.values() if one.rates.complete and one.device.is_as_fast_as(kind.device))
    return kind if kind.rates.complete else next(alike, kind)


def _scaled(estimate: Estimate | None, seconds: float, nbytes: float) -> Estimate | None:
    if estimate is None:
        return None
    taken = estimate.train_seconds * seconds, estimate.spend_seconds * seconds, int(estimate.peak_bytes * nbytes)
    return Estimate(*taken, estimate.storage_bytes)
