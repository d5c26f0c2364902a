"""What is kept of a trial, and of a study."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tuner.knobs import Scalar
from tuner.plan import TrialPlan

State = Literal["done", "rejected", "stopped", "killed", "failed"]
STATES: tuple[State, ...] = ("done", "rejected", "stopped", "killed", "failed")
#: States whose measured values count.
SCORED: frozenset[State] = frozenset({"done", "stopped"})


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan is expected to cost on this device.

    Attributes:
        train_seconds: On an empty store: filling plus epochs.
        spend_seconds: What is still to be paid now: epochs, scoring, and filling of what is not stored yet.
        peak_bytes: Above the resting process.
        storage_bytes: Of stored features.
    """

    train_seconds: float
    spend_seconds: float
    peak_bytes: int
    storage_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial measured.

    Attributes:
        values: By name; every objective of the study is in it.
        epochs: Per epoch: loss, local validation accuracy, seconds.
        stopped: Why training ended early; empty where it did not.
        notes: What the user should know ("run by the eager loop").
    """

    values: dict[str, float]
    epochs: tuple[dict[str, float], ...] = ()
    stopped: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A finished trial: what was asked, what was expected, what came out."""

    trial: int
    state: State
    plan: TrialPlan | None
    knobs: dict[str, Scalar] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    estimate: Estimate | None = None
    reason: str = ""
    spent_seconds: float = 0.0
    epochs: tuple[dict[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    constraint: dict[str, float] = field(default_factory=dict)
    same_as: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON's types; the plan as its decisions only."""
        content = asdict(self)
        content["plan"] = self.plan.settings() if self.plan else None
        content["key"] = self.plan.key() if self.plan else None
        content["sentence"] = self.plan.say() if self.plan else ""
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], template: TrialPlan) -> "TrialRecord":
        """Read a record back; `template` holds the model and the task that the study is about."""
        from pydantic import TypeAdapter

        kept = {name: value for name, value in content.items() if name not in {"key", "sentence"}}
        if kept["plan"] is not None:
            base = {"model": asdict(template.model), "task": asdict(template.task)}
            kept["plan"] = {**base, **kept["plan"]}
        return TypeAdapter(cls).validate_python(kept)


def eligible(record: TrialRecord) -> bool:
    """Return whether a trial may stand on the front: measured, new, and within every limit."""
    within = all(value <= 0 for value in record.constraint.values())
    return record.state in SCORED and record.same_as is None and within


def binding(name: str) -> str:
    """Return what kept a plan from the front, from the name of a record's constraint, for people."""
    return {"failed": "failures", "support": "what the backend cannot do"}.get(name, f"--{name}")
