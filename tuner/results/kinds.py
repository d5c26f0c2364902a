"""Kinds of devices: trials of one study may run on several. Accuracies are shared; seconds and bytes are a kind's own.

What a trial took on one kind is translated to another by the rates that both have measured: by the ratio of the two
estimates of its plan, which keeps what the trial showed of the estimates' error.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tuner.errors import RunError
from tuner.plan.trial import TrialPlan
from tuner.planner import cost
from tuner.planner.cost import Estimate
from tuner.planner.device import Rates
from tuner.results.config import Budget
from tuner.results.records import SCORED, TrialRecord

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
    """

    processor: str = ""
    machine: str = ""
    cores: int = 1
    memory_gib: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A name that is equal for equal devices only: 8 hex digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=LETTERS // 2).hexdigest()

    def __str__(self) -> str:
        """Return the device for people."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{self.processor or self.machine}, {cores}, {self.memory_gib} GiB"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of device in a study.

    Attributes:
        device: What its devices have in common.
        rates: Their rates on the study's model; of the first that measured all of them.
    """

    device: Device
    rates: Rates


def cost_constraints(values: Mapping[str, float], limits: Budget) -> dict[str, float]:
    """Return by how much a trial's costs break the limits on them: log(value / limit)."""
    found = (
        ("train-time", values["train_seconds"], limits.train_seconds),
        ("memory", values["peak_bytes"], limits.memory_bytes),
    )
    return {name: math.log(max(value, 1e-3) / limit) for name, value, limit in found if limit is not None}


def as_seen(record: TrialRecord, own: str, kinds: Mapping[str, Kind], limits: Budget) -> TrialRecord | None:
    """Return what a trial says to a device of some kind.

    Args:
        record: Of a trial on any kind.
        own: Name of the kind that it is to be translated to.
        kinds: All kinds of the study, by name.
        limits: Limits on costs, as they are on the device.

    Returns:
        The record with costs as they are expected there; as it is if it was measured there. None where it says nothing
        there: it was refused for what the other kind has or lacks.
    """
    if record.kind == own or own not in kinds or record.kind not in kinds:
        return record
    if record.state in {"rejected", "killed"}:
        return None
    if record.plan is None or record.state not in SCORED:
        return record
    here, there = kinds[own], kinds[record.kind]
    plan = _on(record.plan, here)
    seconds = cost.train_seconds(plan, here.rates) / max(1e-9, cost.train_seconds(record.plan, there.rates))
    nbytes = cost.peak_bytes(plan, here.rates) / max(1, cost.peak_bytes(record.plan, there.rates))
    latency = here.rates.latency_seconds / there.rates.latency_seconds if there.rates.latency_seconds else 1.0
    ratios = {"train_seconds": seconds, "peak_bytes": nbytes, "mean_latency_seconds": latency or 1.0}
    values = {name: value * ratios.get(name, 1.0) for name, value in record.values.items()}
    constraint = {name: value for name, value in record.constraint.items() if name not in COST_LIMITS}
    return replace(
        record,
        plan=plan,
        values=values,
        constraint=constraint | cost_constraints(values, limits),
        estimate=_scaled(record.estimate, seconds, nbytes),
        uncalibrated=_scaled(record.uncalibrated, seconds, nbytes),
    )


def _on(plan: TrialPlan, kind: Kind) -> TrialPlan:
    """Return a plan as it is composed on a kind: with as many threads as that has cores."""
    return replace(plan, runtime=replace(plan.runtime, threads=kind.device.cores))


def _scaled(estimate: Estimate | None, seconds: float, nbytes: float) -> Estimate | None:
    if estimate is None:
        return None
    taken = estimate.train_seconds * seconds, estimate.spend_seconds * seconds, int(estimate.peak_bytes * nbytes)
    return Estimate(*taken, estimate.storage_bytes)


def chosen_kind(asked: str, kinds: Mapping[str, Kind]) -> str:
    """Return the name of the kind that the user asks for by its first letters.

    Raises:
        RunError: There is none, or there are several.
    """
    found = [name for name in kinds if name.startswith(asked)] if asked else []
    if len(found) != 1:
        known = "; ".join(f"{name} ({kind.device})" for name, kind in kinds.items()) or "none, as it ran on one device"
        raise RunError(f"--kind must name one kind of device, got {asked!r}: the kinds are {known}")
    return found[0]
