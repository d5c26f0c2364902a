"""Objectives: the measured numbers that a study maximises or minimises."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from tuner.errors import PluginError
from tuner.targets import KINDS, Targets
from tuner.targets.base import ACCURACY, BALANCED, ERROR, LEFT_OUT

Direction = Literal["maximise", "minimise"]
#: Ends the name of a value's standard error.
STANDARD_ERROR = "_se"
F = TypeVar("F", bound=Callable[..., Any])
#: Kinds of targets by the unit of their score.
_OF_UNIT = {kind.unit: kind() for kind in KINDS.values()}
#: Units of scores that are no accuracies.
SCORES = frozenset(_OF_UNIT) - {"%"}
#: The domain whose samples an accuracy is of.
DOMAINS = {"local_accuracy": "local", "global_accuracy": "global", LEFT_OUT + ACCURACY: LEFT_OUT}


@dataclass(frozen=True, slots=True)
class Objective:
    """A measured number that a study maximises or minimises.

    Attributes:
        name: Name of the measure in a trial's outcome (``"local_accuracy"``).
        unit: For people: ``"%"`` (of a fraction), ``"s"``, ``"B"``, ``"FLOP"``, ``"R²"`` or ``"AUC"``.
        needs_global: Whether it needs global data.
        domain: Of a function of predictions and labels, ``"local"`` or ``"global"``: whose validation samples it is of.
        needs: Attribute of `Targets` that must be true for it: ``"has_classes"`` or ``"one_class"``; empty for none.
    """

    name: str
    direction: Direction
    unit: str = ""
    needs_global: bool = False
    domain: str = ""
    needs: str = ""

    @property
    def optuna_direction(self) -> Literal["minimize", "maximize"]:
        """The direction as Optuna spells it."""
        return "minimize" if self.direction == "minimise" else "maximize"

    @property
    def sign(self) -> float:
        """1 where smaller is better, -1 where larger is."""
        return 1.0 if self.direction == "minimise" else -1.0

    @property
    def title(self) -> str:
        """The name for people."""
        return titled(self.name, self.unit if self.unit in SCORES else "%")

    @property
    def word(self) -> str:
        """The name in a line of text: as ``--pick`` takes it, or for people where the score is no accuracy."""
        return self.title if self.unit in SCORES else self.name

    def of(self, targets: Targets) -> "Objective":
        """Return the objective as it is of a task: what is called accuracy may be another score."""
        return replace(self, unit=targets.unit) if targets.unit in SCORES and self.name.endswith(ACCURACY) else self

    def loss(self, values: Mapping[str, float]) -> float:
        """Return the value with the sign that makes smaller better."""
        return self.sign * values[self.name]

    def text(self, value: float, scored: Mapping[str, int] = MappingProxyType({})) -> str:
        """Return the value with its unit, for people.

        `scored` has the validation samples by domain: an accuracy on them has its 95 % interval (Wilson).
        """
        if self.unit in _OF_UNIT:
            return _OF_UNIT[self.unit].text(value, scored.get(DOMAINS.get(self.name, ""), 0))
        if self.unit == "B":
            return f"{value / 1e6:,.0f} MB" if value >= 1e7 else f"{value / 1e6:.2g} MB"  # noqa: PLR2004 - ten of them
        if self.unit == "FLOP":
            return f"{value / 1e6:,.3g} MFLOP" if value < 1e9 else f"{value / 1e9:,.3g} GFLOP"  # noqa: PLR2004 - giga
        for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if not self.unit and abs(value) >= 0.9995 * factor:  # which 3 digits round to the factor
                return f"{value / factor:.3g} {prefix}"
        return f"{value:,.3g} {self.unit}".strip()

    def text_of(self, values: Mapping[str, float], scored: Mapping[str, int] = MappingProxyType({})) -> str:
        """Return a trial's value with its unit, and its standard error where that was measured: ``"81.0 % ± 2.5"``."""
        text, error = self.text(values[self.name], scored), values.get(self.name + STANDARD_ERROR)
        return text if error is None else f"{text} ± {100 * error:.1f}" if self.unit == "%" else f"{text} ± {error:.2g}"


OBJECTIVES = (
    Objective("local_accuracy", "maximise", "%"),
    Objective("global_accuracy", "maximise", "%", needs_global=True),
    Objective("train_seconds", "minimise", "s"),
    Objective("peak_bytes", "minimise", "B"),
)
#: Measured too, but no objective unless a search space asks for it.
BUNDLE_BYTES = Objective("bundle_bytes", "minimise", "B")
#: What a solved head scores on all local samples: no objective, as trained tails have no such score.
LEFT_OUT_ACCURACY = Objective(LEFT_OUT + ACCURACY, "maximise", "%")
#: The mean over the user's classes of the accuracy on each: measured where they are uneven, and likewise no objective.
BALANCED_ACCURACY = Objective("local" + BALANCED, "maximise", "%")
#: Values that the backends which come with tuner measure of every trial.
MEASURED = frozenset(
    {"parameters", "flops", "mean_flops", "mean_latency_seconds"} | {one.name for one in (*OBJECTIVES, BUNDLE_BYTES)}
)


def objective(
    direction: str = "maximise",
    *,
    unit: str = "",
    domain: Literal["local", "global"] = "local",
    needs: Literal["", "has_classes", "one_class"] = "",
) -> Callable[[F], F]:
    """Say what a function of predictions and labels is as an objective; one that is not decorated is maximised.

    Args:
        direction: ``"maximise"`` or ``"minimise"``.
        unit: For people; ``"%"`` for a fraction.
        domain: Whose validation samples it is of: the user's, or those of the classes that the model knew.
        needs: What labels must be: classes, or one class a sample; other tasks then refuse it in one line.
    """
    own: Direction = "minimise" if direction in ("minimise", "minimize") else "maximise"
    if direction not in (own, own.replace("s", "z")):
        raise PluginError(f"the direction of an objective must be maximise or minimise, got {direction!r}")

    def described(function: F) -> F:
        function.objective = Objective(function.__name__, own, unit, domain == "global", domain, needs)  # type: ignore[attr-defined]  # of any function
        return function

    return described


def objective_from(function: Callable[..., Any]) -> Objective:
    """Return the objective that a function of predictions and labels is."""
    own: Objective = getattr(function, "objective", None) or objective()(function).objective  # type: ignore[attr-defined]
    return own


def title_of(name: str, targets: Targets) -> str:
    """Return the name of a value for people: ``"local accuracy"``, or ``"local AUC"`` or ``"local R²"``."""
    return titled(name, targets.unit)


def titled(name: str, unit: str = "%") -> str:
    """Return the name of a value for people, by the unit of the score that is called accuracy; ``"%"`` for one."""
    name = name.replace(LEFT_OUT, "local_leave-one-out", 1)
    if name.endswith(ERROR):
        return f"{name.removesuffix(ERROR).replace('_', ' ')} mean absolute error"
    if unit != "%" and name.endswith(ACCURACY):
        name = name.removesuffix(ACCURACY) + f"_{unit}"
    return name.replace("_", " ").replace(" f1", " F1")


def objective_of(name: str, objectives: Iterable[Objective], targets: Targets) -> Objective:
    """Return an objective of a study by its name, or one of those there are by default."""
    own = next(one for one in (*objectives, *OBJECTIVES) if one.name == name)
    return own.of(targets)
