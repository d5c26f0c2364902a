"""Kinds of devices: trials of a study may run on several. Accuracies are shared; seconds and bytes are a kind's own."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tuner.errors import RunError
from tuner.planner.device import Rates
from tuner.results.records.config import Budget
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
        pace: Seconds that its trials took, relative to those expected from the rates.
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


def chosen_kind(asked: str, kinds: Mapping[str, Kind]) -> str:
    """Return the name of the kind that the user asks for by its first letters; there must be exactly one."""
    found = [name for name in kinds if name.startswith(asked)] if asked else []
    if len(found) != 1:
        known = "; ".join(f"{name} ({kind.device})" for name, kind in kinds.items()) or "none, as it ran on one device"
        raise RunError(f"--kind must name one kind of device, got {asked!r}: the kinds are {known}")
    return found[0]
