"""Measures: values that plugins take of a trial in the process that trains it. This module loads no tensor library."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import first_line, place_of
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTrial:
    """A trial that was trained and scored, as a measure sees it.

    Attributes:
        plan: What was trained.
        tail: What trained, the backend's own: on PyTorch a module. With exits, a list of the tail and of all heads.
        outcome: Scores, costs and the log of the epochs so far.
        continued: Number of epochs that an interrupted process had trained before: the measure did not see them.
    """

    plan: TrialPlan
    tail: Any
    outcome: Outcome
    continued: int = 0


#: Begins to measure before a trial is trained; what it returns ends that after the trial is scored, with the value.
Measure = Callable[[], Callable[[MeasuredTrial], float]]


class Measuring:
    """Takes the measures that a study's objectives ask for. One that fails costs its own value only."""

    def __init__(self, measures: Mapping[str, Measure], wanted: Iterable[str]) -> None:
        self._ends: dict[str, Callable[[MeasuredTrial], float]] = {}
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
                values[name] = float(end(trial))
            except Exception as error:  # noqa: BLE001 - a plugin's measure may raise anything
                self._note(name, error)
                continue
            if not math.isfinite(values[name]):
                self._notes.append(f"measure {name!r}: a value must be finite, but it is {values.pop(name)}")
        outcome = trial.outcome
        return replace(outcome, values=values | outcome.values, notes=(*outcome.notes, *self._notes))

    def _note(self, name: str, error: Exception) -> None:
        self._notes.append(f"measure {name!r}: {first_line(error)}{place_of(error)}")
