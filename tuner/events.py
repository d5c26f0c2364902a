"""What happens in a run, as typed events: for ``tuner.run(on_event=...)``, and for the log.

``tuner.run`` logs every event to the logger ``tuner.run``, whether or not it shows progress. Nothing is printed unless
the program configures `logging`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.plan.text import describe
from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import Objective
from tuner.search.listener import Listener

__all__ = ["BaselineScored", "Event", "Finished", "FrontChanged", "Message", "PhaseStarted", "Step", "TrialFinished"]

#: How a message begins that is a warning.
WARNING = "warning: "

logging.getLogger("tuner").addHandler(logging.NullHandler())
_logger = logging.getLogger("tuner.run")


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """A phase of the run begins; this is its name."""

    phase: str


@dataclass(frozen=True, slots=True)
class Step:
    """Progress within a phase; many of them come each second.

    Attributes:
        phase: The phase's name.
        what: What is counted.
        done: How much is done, in the unit of `of`.
        of: How much there is to do: samples, or steps of the optimiser.
    """

    phase: str
    what: str
    done: float
    of: float


@dataclass(frozen=True, slots=True)
class Message:
    """A message for the user, one line; a warning begins with ``warning:``."""

    text: str


@dataclass(frozen=True, slots=True)
class BaselineScored:
    """What the search is compared with was scored; again where trials are scored on more samples than before.

    Attributes:
        name: ``"untouched"``, the given model, or what was fitted, such as ``"linear probe"``.
        values: Its scores by name, accuracies as fractions; none where there is nothing to score.
        note: What it is, or why it has no values.
    """

    name: str
    values: Mapping[str, float]
    note: str = ""


@dataclass(frozen=True, slots=True)
class TrialFinished:
    """A trial ended, whatever its state; its record is on the disk."""

    record: TrialRecord


@dataclass(frozen=True, slots=True)
class FrontChanged:
    """The Pareto front has changed in (local, global) accuracy, or is now of a higher rung.

    Attributes:
        hypervolume: Area that the front dominates, from 0 to 1; only comparable on the same rung.
        rung: Rung that the front is scored on, counted from the top: 0 has all samples.
        expected_growth: What the rest of the time is expected to add; None where that is not known.
    """

    hypervolume: float
    rung: int
    expected_growth: float | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The run has ended by itself, as ``tuner.run`` returns it; nothing comes after this event."""

    run: Run


Event = PhaseStarted | Step | Message | BaselineScored | TrialFinished | FrontChanged | Finished


class Events(Listener):
    """Turns what a study reports into events, which each receiver is called with, one after the other."""

    def __init__(self, *receivers: Callable[[Event], object]) -> None:
        self._receivers = receivers
        self._phase = ""
        self._front: tuple[float, int] | None = None

    def say(self, line: str) -> None:
        """Pass a message on."""
        self._emit(Message(line))

    def phase(self, name: str) -> None:
        """Pass a phase on, unless it is the current one."""
        if name != self._phase:
            self._phase = name
            self._emit(PhaseStarted(name))

    def step(self, what: str, done: float, of: float) -> None:
        """Pass progress on."""
        self._emit(Step(self._phase, what, done, of))

    def baseline(
        self,
        baseline: Baseline,
        objectives: Sequence[Objective],  # noqa: ARG002 - in `Finished`
        scored: Mapping[str, int],  # noqa: ARG002 - likewise
    ) -> None:
        """Pass a baseline's scores on."""
        self._emit(BaselineScored(baseline.name, dict(baseline.values), baseline.note))

    def trial(self, record: TrialRecord) -> None:
        """Pass a trial on."""
        self._emit(TrialFinished(record))

    def front(self, area: float, rung: int, gain: float | None) -> None:
        """Pass the front on if it is another one."""
        if (area, rung) != self._front:
            self._front = area, rung
            self._emit(FrontChanged(area, rung, gain))

    def finished(self, run: Run) -> None:
        """Pass the finished run on."""
        self._emit(Finished(run))

    def _emit(self, event: Event) -> None:
        for receive in self._receivers:
            receive(event)


def log(event: Event) -> None:
    """Log an event: what is counted many times a second as DEBUG, warnings and failed trials as WARNING."""
    match event:
        case PhaseStarted(phase):
            _logger.info("phase: %s", phase)
        case Step(phase, what, done, of):
            _logger.debug("%s: %s: %g of %g", phase, what, done, of)
        case Message(text) if text.startswith(WARNING):
            _logger.warning("%s", text.removeprefix(WARNING))
        case Message(text):
            _logger.info("%s", text)
        case BaselineScored(name, values, note):
            _logger.info("%s: %s", name, _text(values) or note)
        case TrialFinished(record):
            level = logging.WARNING if record.state == "failed" else logging.INFO
            sentence = describe(record.plan) if record.plan else "no plan"
            result = record.reason or _text(record.values)
            _logger.log(level, "trial %d %s: %s | %s", record.trial, record.state, result, sentence)
        case FrontChanged(hypervolume, rung, _):
            _logger.info("front: hypervolume %.4f on rung %d", hypervolume, rung)
        case Finished(run):
            _logger.info("finished: %r", run)


def _text(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.4g}" for name, value in values.items())
