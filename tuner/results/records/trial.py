"""Trial records: what was asked of a trial, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from tuner.plan.parts import Scalar, Stage
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan, check
from tuner.planner.price import Estimate
from tuner.printable import html_table
from tuner.results.records.baseline import require_shares
from tuner.results.records.counts import ClassCounts

if TYPE_CHECKING:
    from pydantic import TypeAdapter

TrialState = Literal["done", "rejected", "stopped", "killed", "failed"]
STATES: tuple[TrialState, ...] = ("done", "rejected", "stopped", "killed", "failed")
#: States of trials that have measured values.
SCORED: frozenset[TrialState] = frozenset({"done", "stopped"})
#: Value of a trial whose head was solved for again: 1 where that head was kept, 0 where the trained one was.
HEAD_SOLVED = "head_solved"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial measured.

    Attributes:
        values: Measured values by name, with every objective of the study.
        epochs: Loss, seconds and, with patience, local validation accuracy of every epoch.
        stopped: Why training ended early; empty if it did not.
        notes: Notes for the user, such as which engine ran the steps.
        classes: Predictions on the validation samples by domain, counted by class; nothing for several labels.
        right: Which of the local validation samples were right, as `tuner.results.records.baseline.packed` returns it,
            a text for each training that is scored; nothing for several labels.
    """

    values: dict[str, float]
    epochs: tuple[dict[str, float], ...] = ()
    stopped: str = ""
    notes: tuple[str, ...] = ()
    classes: dict[str, ClassCounts] = field(default_factory=dict)
    right: tuple[str, ...] = ()


#: Scores that a record shows of itself.
SHOWN = ("local_accuracy", "global_accuracy")


@dataclass(frozen=True, slots=True, repr=False)
class TrialRecord:
    """A finished trial.

    Attributes:
        trial: Number of the trial.
        state: How it ended.
        plan: What was to be trained; None if no plan could be composed.
        knobs: Values of the knobs.
        values: Measured values by name; empty unless the state is one of `SCORED`.
        estimate: Cost expected before the trial.
        reason: Why the trial did not run to its end; empty if it did.
        started: When it began, in seconds since 1970; 0 in runs that did not write it down.
        spent_seconds: Wall time, filling included.
        epochs: Log of the epochs; see `Outcome`.
        notes: Notes for the user, and the traceback of an exception.
        constraint: By how much each limit is broken, as log(value / limit), of forgetting as a difference of
            accuracies: at most 0 where the limit is obeyed.
        same_as: Earlier trial with an equal plan, whose values these are.
        rung: Rung that the plan was tried on, counted from the top, which is 0: all samples, all epochs; -1 where
            it was cross-validated.
        promoted: Trial that tried the same knobs first, on the lowest rung; None where this one did.
        uncalibrated: Cost expected by the device's rates alone; None where there is no estimate.
        classes: See `Outcome`.
        prior: Number of the plan in the prior that it was taken from; None for other plans.
        kind: Kind of device that it ran on, see `tuner.results.kinds`; empty where a run has only one.
        right: See `Outcome`.
        strategies: Names of the strategies that changed the plan.
    """

    trial: int
    state: TrialState
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
    rung: int = 0
    promoted: int | None = None
    uncalibrated: Estimate | None = None
    classes: dict[str, ClassCounts] = field(default_factory=dict)
    prior: int | None = None
    kind: str = ""
    right: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    started: float = 0.0

    def __repr__(self) -> str:
        """Return one line: the number, how the trial ended, its scores, and what was trained or why it was not."""
        scores = "".join(f" {name} {self.values[name]:.4g}," for name in SHOWN if name in self.values)
        rest = self.reason or (describe(self.plan) if self.plan else "no plan")
        return f"<Trial {self.trial}: {self.state},{scores} {rest}>"

    def _repr_html_(self) -> str:
        texts = {name: f"{value:.4g}" for name, value in self.values.items()}
        rest = self.reason or (describe(self.plan) if self.plan else "no plan")
        return html_table(f"trial {self.trial}: {self.state}", {"plan": rest, **texts})

    @property
    def config(self) -> int:
        """Number of the trial that tried these knobs first: equal for the same knobs on all rungs."""
        return self.trial if self.promoted is None else self.promoted

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON's types; the plan as its decisions only."""
        content = asdict(self)
        content["plan"] = self.plan.settings() if self.plan else None
        content["key"] = self.plan.key() if self.plan else None
        content["sentence"] = describe(self.plan) if self.plan else ""
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], template: TrialPlan) -> "TrialRecord":
        """Read a record back; `template` holds the model and the task that the study is about.

        Raises:
            ValueError: A value has another type, or is no accuracy where it should be one.
            PlanError: The plan breaks a rule.
        """
        values = {name: value for name, value in content.items() if name not in {"key", "sentence"}}
        if values["plan"] is not None:
            model = template.model.at(values["plan"].get(Stage.SIZE.value, 0))
            base = {"model": asdict(model), "task": asdict(template.task)}
            values["plan"] = {**base, **values["plan"]}
        record = _adapter().validate_python(values)
        require_shares(record.values)
        if record.plan is not None:
            check(record.plan)
        return record


@cache
def _adapter() -> "TypeAdapter[TrialRecord]":
    from pydantic import TypeAdapter

    return TypeAdapter(TrialRecord)


def eligible(record: TrialRecord) -> bool:
    """Return whether a trial may be on the front: measured, no repetition, and within every limit."""
    within = all(value <= 0 for value in record.constraint.values())
    return record.state in SCORED and record.same_as is None and within


def was_trained(record: TrialRecord) -> bool:
    """Return whether the record is that of a plan's own training: a refusal may end differently another time."""
    return record.same_as is None and record.state != "rejected"


def plan_of(record: TrialRecord) -> TrialPlan:
    """Return the plan of a record that has one."""
    if record.plan is None:
        raise ValueError("the trial must have a plan")
    return record.plan


def binding(name: str) -> str:
    """Return the name of a record's constraint for people."""
    texts = {"failed": "failures", "diverged": "diverged trainings", "support": "missing support of the backend"}
    return texts.get(name, f"--{name}")


def varied_knobs(records: Sequence[TrialRecord]) -> dict[str, list[Scalar]]:
    """Return the values of each knob that had more than one."""
    seen: dict[str, list[Scalar]] = {}
    for record in records:
        for name, value in record.knobs.items():
            seen.setdefault(name, []).append(value)
    return {name: values for name, values in seen.items() if len(set(values)) > 1}
