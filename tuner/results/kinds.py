"""Kinds of devices: trials of one study may run on several. Accuracies are shared; seconds and bytes are a kind's own.

What a trial took on one kind is translated to another by the ratio of the two estimates of its plan, which keeps what
the trial showed of the estimates' error. A device may have been busy while it was measured, so each kind's estimates
are corrected by what its own trials took. Devices that differ in ``--memory`` alone are two kinds of equal speed.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import median

from tuner.errors import RunError
from tuner.planner.device import Rates
from tuner.planner.price import Estimate, price
from tuner.results.records.config import Budget
from tuner.results.records.trial import SCORED, TrialRecord
from tuner.units import format_bytes

#: Limits on costs, which each kind obeys for itself.
COST_LIMITS = ("train-time", "memory")
LETTERS = 8


@dataclass(frozen=True, slots=True)
class Device:
    """What makes two devices alike.

    Attributes:
        processor: Its name.
        machine: Its architecture, such as ``aarch64``.
        cores: Processors that may be used.
        memory_gib: Memory, in whole GiB.
        versions: Versions of what trains, by library.
        trial_bytes: Limit on a trial's memory (``--memory``); None for none.
    """

    processor: str = ""
    machine: str = ""
    cores: int = 1
    memory_gib: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    trial_bytes: int | None = None

    @property
    def name(self) -> str:
        """A name that is equal for equal devices only: 8 hex digits."""
        text = json.dumps({name: value for name, value in asdict(self).items() if value is not None}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=LETTERS // 2).hexdigest()

    def __str__(self) -> str:
        """Return the device for people."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        limit = "" if self.trial_bytes is None else f", --memory {format_bytes(self.trial_bytes)}"
        return f"{self.processor or self.machine}, {cores}, {self.memory_gib} GiB{limit}"

    def is_as_fast_as(self, other: "Device") -> bool:
        """Return whether two devices differ in their limits at most."""
        return replace(self, trial_bytes=None) == replace(other, trial_bytes=None)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of device in a study: what its devices have in common, and their rates on the study's model.

    Attributes:
        rates: Of the first device that measured all of them, if any did.
        pace: Seconds that its trials took, relative to those expected from the rates; see `paced`.
    """

    device: Device
    rates: Rates
    pace: float = 1.0


def cost_constraints(values: Mapping[str, float], limits: Budget) -> dict[str, float]:
    """Return by how much a trial's costs break the limits on them: log(value / limit)."""
    found = (
        ("train-time", values["train_seconds"], limits.train_seconds),
        ("memory", values["peak_bytes"], limits.memory_bytes),
    )
    return {name: math.log(max(value, 1e-3) / limit) for name, value, limit in found if limit is not None}


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


def chosen_kind(asked: str, kinds: Mapping[str, Kind]) -> str:
    """Return the name of the kind that the user asks for by its first letters; there must be exactly one."""
    found = [name for name in kinds if name.startswith(asked)] if asked else []
    if len(found) != 1:
        known = "; ".join(f"{name} ({kind.device})" for name, kind in kinds.items()) or "none, as it ran on one device"
        raise RunError(f"--kind must name one kind of device, got {asked!r}: the kinds are {known}")
    return found[0]
