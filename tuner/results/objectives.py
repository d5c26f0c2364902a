"""Objectives: the measured numbers that a study maximises or minimises."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from tuner.metrics import percent

Direction = Literal["maximise", "minimise"]
#: The domain whose samples an accuracy is of.
DOMAINS = {"local_accuracy": "local", "global_accuracy": "global"}


@dataclass(frozen=True, slots=True)
class Objective:
    """A measured number that a study maximises or minimises.

    Attributes:
        name: Name of the measure in a trial's outcome (``"local_accuracy"``).
        direction: Which way is better.
        unit: Unit for people: ``"%"`` (of a fraction), ``"s"``, ``"B"`` or ``"FLOP"``.
        needs_global: Whether it needs global data.
    """

    name: str
    direction: Direction
    unit: str = ""
    needs_global: bool = False

    @property
    def optuna_direction(self) -> Literal["minimize", "maximize"]:
        """The direction as Optuna spells it."""
        return "minimize" if self.direction == "minimise" else "maximize"

    @property
    def sign(self) -> float:
        """1 where smaller is better, -1 where larger is."""
        return 1.0 if self.direction == "minimise" else -1.0

    def loss(self, values: Mapping[str, float]) -> float:
        """Return the value with the sign that makes smaller better."""
        return self.sign * values[self.name]

    def text(self, value: float, scored: Mapping[str, int] = MappingProxyType({})) -> str:
        """Return the value with its unit, for people.

        Args:
            value: The value.
            scored: Number of validation samples by domain: an accuracy on them has its 95 % interval (Wilson).
        """
        if self.unit == "%":
            return percent(value, scored.get(DOMAINS.get(self.name, ""), 0))
        if self.unit == "B":
            return f"{value / 1e6:,.0f} MB"
        if self.unit == "FLOP":
            return f"{value / 1e6:,.3g} MFLOP" if value < 1e9 else f"{value / 1e9:,.3g} GFLOP"  # noqa: PLR2004 - giga
        return f"{value:,.3g} {self.unit}".strip()


OBJECTIVES = (
    Objective("local_accuracy", "maximise", "%"),
    Objective("global_accuracy", "maximise", "%", needs_global=True),
    Objective("train_seconds", "minimise", "s"),
    Objective("peak_bytes", "minimise", "B"),
)
#: Values that the backends which come with tuner measure of every trial.
MEASURED = frozenset({"parameters", "flops", "mean_flops", "mean_latency_seconds"} | {one.name for one in OBJECTIVES})
#: How the name of a value ends that is an accuracy.
ACCURACY = "_accuracy"
