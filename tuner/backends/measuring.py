"""Measures: values that plugins take of a trial in the process that trains it. This module loads no tensor library."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from typing import Any

import numpy as np

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.errors import PluginError, first_line, nearest, place_of
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome
from tuner.results.scores.objectives import STANDARD_ERROR, Objective
from tuner.targets import Targets

#: A standard error comes from so many scores, each without one part of the samples.
PARTS = 20
#: What a function of predictions and labels may ask for; the last two are scikit-learn's names of the first two.
ARGUMENTS = ("predictions", "labels", "probabilities", "names", "y_pred", "y_true")


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a trained model answers to the validation samples of a domain, and what is right.

    Attributes:
        logits: What the head gives, float32 [n, outputs]; with exits, of the exit that each sample left at.
        labels: Numbers of classes, int64 [n]; 0 or 1, float32 [n, outputs], where a sample may have several labels; or
            numbers as the model learns them, float32 [n, outputs].
        targets: What a label is.
        names: Names of the classes, or of the outputs, in the order of their numbers.
    """

    logits: Floats
    labels: Labels
    targets: Targets
    names: tuple[str, ...]

    def arguments(self) -> dict[str, Any]:
        """Return the `ARGUMENTS` by name; numbers are in their own unit."""
        predictions, labels, scale = self.targets.answers(self.logits), self.labels, self.targets.scale
        if scale is not None:
            predictions, labels = (scale.mean + np.multiply(scale.std, one) for one in (predictions, labels))
        probabilities = self.targets.probabilities(self.logits)
        return dict(zip(ARGUMENTS, (predictions, labels, probabilities, self.names, predictions, labels), strict=True))

    def only(self, rows: RowNumbers) -> "Answers":
        """Return the answers to some of the samples."""
        return replace(self, logits=self.logits[rows], labels=self.labels[rows])


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTrial:
    """A trial that was trained and scored, as a measure sees it.

    Attributes:
        plan: What was trained.
        tail: What trained, the backend's own: on PyTorch a module. With exits, a list of the tail and of all heads.
        outcome: Scores, costs and the log of the epochs so far.
        continued: Number of epochs that an interrupted process had trained before: the measure did not see them.
        answers: What it answers to validation samples, by domain: ``"local"``, and ``"global"`` where there are any.
    """

    plan: TrialPlan
    tail: Any
    outcome: Outcome
    continued: int = 0
    answers: Mapping[str, Answers] = field(default_factory=dict)


#: Begins to measure before a trial is trained; what it returns ends that after the trial is scored, with the value, or
#: with several by name.
Measure = Callable[[], Callable[[MeasuredTrial], float | Mapping[str, float]]]


class Measuring:
    """Takes the measures that a study's objectives ask for. One that fails costs its own value only."""

    def __init__(self, measures: Mapping[str, Measure], wanted: Iterable[str]) -> None:
        self._ends: dict[str, Callable[[MeasuredTrial], float | Mapping[str, float]]] = {}
        self._notes: list[str] = []
        for name in wanted:
            if name in measures:
                try:
                    self._ends[name] = measures[name]()
                except Exception as error:  # noqa: BLE001 - a plugin's measure may raise anything
                    self._note(name, error)

    def end(self, trial: MeasuredTrial) -> Outcome:
        """Return the outcome with what was measured. What the backend itself has measured stays."""
        values: dict[str, float] = {}
        for name, end in self._ends.items():
            try:
                ended = end(trial)
                measured = ended if isinstance(ended, Mapping) else {name: ended}
                values |= {own: float(value) for own, value in measured.items()}
            except Exception as error:  # noqa: BLE001 - a plugin's measure may raise anything
                self._note(name, error)
        for name in [name for name, value in values.items() if not math.isfinite(value)]:
            self._notes.append(f"measure {name!r}: a value must be finite, but it is {values.pop(name)}")
        outcome = trial.outcome
        return replace(outcome, values=values | outcome.values, notes=(*outcome.notes, *self._notes))

    def _note(self, name: str, error: Exception) -> None:
        self._notes.append(f"measure {name!r}: {first_line(error)}{place_of(error)}")


def measure_of(objective: Objective, function: Callable[..., float]) -> Measure:
    """Return what measures a function of predictions and labels, with its standard error.

    Raises:
        PluginError: It asks for an argument that there is not.
    """
    _asked(function)

    def end(trial: MeasuredTrial) -> Mapping[str, float]:
        answers = trial.answers[objective.domain]
        return {objective.name: _called(function, answers)} | _error(objective.name, function, answers)

    return lambda: end


def _asked(function: Callable[..., float]) -> list[str]:
    """Return the arguments that a function of predictions and labels asks for."""
    many = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)  # which take anything and ask for nothing
    asked = {name: one for name, one in signature(function).parameters.items() if one.kind not in many}
    for name, one in asked.items():
        if name not in ARGUMENTS and one.default is Parameter.empty:
            raise PluginError(
                f"objective {function.__name__!r} asks for argument {name!r}{nearest(name, ARGUMENTS)}: a function of "
                f"predictions and labels takes {', '.join(ARGUMENTS[:4])}, by these names"
            )
    own = [name for name in asked if name in ARGUMENTS]
    if {"labels", "y_true"} <= {*own} and asked["labels"].default is not Parameter.empty:
        own.remove("labels")  # scikit-learn's: names of the classes that count, all of them by default
    return own


def _called(function: Callable[..., float], answers: Answers) -> float:
    given = answers.arguments()
    return float(function(**{name: given[name] for name in _asked(function)}))


def _error(name: str, function: Callable[..., float], answers: Answers) -> dict[str, float]:
    """Return the standard error by the jackknife, each time without one of `PARTS`; nothing where one has no score."""
    part = np.random.default_rng(0).permutation(len(answers.labels)) % PARTS
    try:
        with np.errstate(all="ignore"):
            scores = np.array([_called(function, answers.only(np.flatnonzero(part != one))) for one in range(PARTS)])
    except Exception:  # noqa: BLE001 - a function may need samples of every class
        return {}
    error = math.sqrt((PARTS - 1) / PARTS * float(np.square(scores - scores.mean()).sum()))
    return {name + STANDARD_ERROR: error} if math.isfinite(error) and len(answers.labels) >= PARTS else {}
