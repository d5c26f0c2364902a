"""What a person sees while a study runs: one live panel on a terminal, plain lines elsewhere. All on stderr."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuner.results.objectives import Objective
from tuner.results.records import STATES, TrialRecord, eligible
from tuner.units import said_seconds

REFRESH_PER_SECOND = 4
PLAIN_SECONDS = 10.0


class Progress:
    """Shows time left, trials by state and the best so far per objective.

    The panel comes with the first thing to show: a mistake found before leaves the terminal as it was.

    Args:
        console: Where to; stderr where it is not given.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._end: float | None = None
        self._counts: Counter[str] = Counter()
        self._best: dict[str, tuple[Objective, float, int]] = {}
        self._objectives: Sequence[Objective] = ()
        self._what, self._done, self._of = "starting", 0.0, 1.0
        self._said_at = 0.0
        self._live: Live | None = None

    def ends(self, at: float | None) -> None:
        """Count down to a clock (`time.monotonic`)."""
        self._end = at
        self._show()

    def say(self, line: str) -> None:
        """Print a line above the panel."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def step(self, what: str, done: float, of: float) -> None:
        """Move the bar; off a terminal, a line every 10 s."""
        self._what, self._done, self._of = what, done, of
        self._show()
        now = time.monotonic()
        if self._live is None and now - self._said_at >= PLAIN_SECONDS:
            self._said_at = now
            self.say(f"{what}: {done:,.0f} of {of:,.0f}; {self._left()}")

    def untouched(self, values: Mapping[str, float], objectives: Sequence[Objective]) -> None:
        """Print what the given model scores."""
        self._objectives = objectives
        said = ", ".join(f"{one.name} {one.text(values[one.name])}" for one in objectives if one.name in values)
        self.say(f"untouched model: {said}")

    def resumed(self, records: Sequence[TrialRecord]) -> None:
        """Count the trials of the run that goes on, and say in a line how it stands."""
        for record in records:
            self._count(record)
        if records:
            best = (f"best {name} {one.text(value)}" for name, (one, value, _) in self._best.items())
            self.say(f"going on after {', '.join((self._states(), *best))}")

    def trial(self, record: TrialRecord) -> None:
        """Count a trial, and print it unless it was refused or seen before."""
        self._count(record)
        if record.same_as is not None or record.state == "rejected":
            return
        said = ", ".join(f"{one.name} {one.text(record.values[one.name])}" for one in self._objectives if record.values)
        sentence = record.plan.say() if record.plan else ""
        self.say(f"trial {record.trial} {record.state}: {said or record.reason} | {sentence}")

    def close(self) -> None:
        """Take the panel away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        if self._live is None and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=REFRESH_PER_SECOND, get_renderable=self._panel)
            self._live.start()

    def _count(self, record: TrialRecord) -> None:
        if record.same_as is None:
            self._counts[record.state] += 1
        if eligible(record):
            for one in self._objectives:
                self._note(one, record)

    def _note(self, objective: Objective, record: TrialRecord) -> None:
        value = record.values[objective.name]
        best = self._best.get(objective.name)
        if best is None or objective.sign * value < objective.sign * best[1]:
            self._best[objective.name] = (objective, value, record.trial)

    def _states(self) -> str:
        return ", ".join(f"{self._counts[state]} {state}" for state in STATES if self._counts[state]) or "no trial yet"

    def _left(self) -> str:
        if self._end is None:
            return self._states()
        return f"{said_seconds(max(0.0, self._end - time.monotonic()))} left; {self._states()}"

    def _panel(self) -> Group:
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(self._what), ProgressBar(total=max(self._of, 1e-9), completed=self._done, width=40))
        table.add_row(Text("study"), Text(self._left()))
        for objective, value, trial in self._best.values():
            table.add_row(Text(f"best {objective.name}"), Text(f"{objective.text(value)} (trial {trial})"))
        return Group(table)
