"""What a study says while it runs, for a screen, a log or a test."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tuner.results.objectives import Objective
from tuner.results.records import TrialRecord


class Listener(Protocol):
    """Hears of progress; nothing it does changes the study."""

    def ends(self, at: float | None) -> None:
        """The limits are known: `at` is the clock (`time.monotonic`) at which the time is up; None for never."""

    def say(self, line: str) -> None:
        """Something the user should know."""

    def step(self, what: str, done: float, of: float) -> None:
        """Progress within a long step."""

    def untouched(self, values: Mapping[str, float], objectives: Sequence[Objective]) -> None:
        """The given model was scored; `objectives` are those of the study."""

    def resumed(self, records: Sequence[TrialRecord]) -> None:
        """The study goes on after these trials, none at the first time; `untouched` was told before."""

    def trial(self, record: TrialRecord) -> None:
        """A trial ended."""

    def close(self) -> None:
        """The study is over."""


class Silence:
    """Says nothing."""

    def ends(self, at: float | None) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def step(self, what: str, done: float, of: float) -> None:
        """Nothing."""

    def untouched(self, values: Mapping[str, float], objectives: Sequence[Objective]) -> None:
        """Nothing."""

    def resumed(self, records: Sequence[TrialRecord]) -> None:
        """Nothing."""

    def trial(self, record: TrialRecord) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
