"""Progress of a study for people, on stderr: a live panel on a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuner.plan.text import describe
from tuner.printable import printable
from tuner.results.objectives import Objective
from tuner.results.records import STATES, TrialRecord, eligible
from tuner.search.listener import Listener
from tuner.units import format_seconds

REFRESH_PER_SECOND = 4
PLAIN_SECONDS = 10.0
BARS, MOST_BARS = "▁▂▃▄▅▆▇█", 40


class Progress(Listener):
    """Shows the time left, the number of trials by state and the best value so far of each objective.

    The panel appears with the first progress: an error before that leaves the terminal as it was.

    Args:
        console: Console to show it on; stderr where it is not given.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._end: float | None = None
        self._counts: Counter[str] = Counter()
        self._best: dict[str, tuple[Objective, float, int]] = {}
        self._objectives: Sequence[Objective] = ()
        self._step, self._done, self._of = "starting", 0.0, 1.0
        self._last_line_at = 0.0
        self._live: Live | None = None
        self._front, self._rung, self._areas = "", -1, list[float]()

    def ends(self, at: float | None) -> None:
        """Count down to a clock (`time.monotonic`); None for no limit."""
        self._end = at
        self._show()

    def say(self, line: str) -> None:
        """Print a line above the panel."""
        self._console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def step(self, what: str, done: float, of: float) -> None:
        """Move the bar; off a terminal, print a line every 10 s."""
        self._step, self._done, self._of = what, done, of
        self._show()
        now = time.monotonic()
        if self._live is None and now - self._last_line_at >= PLAIN_SECONDS:
            self._last_line_at = now
            self.say(f"{what}: {done:,.0f} of {of:,.0f}; {self._left()}")

    def untouched(self, values: Mapping[str, float], objectives: Sequence[Objective]) -> None:
        """Print the scores of the given model."""
        self._objectives = objectives
        self.say(f"untouched model: {self._format_values(values)}")

    def resumed(self, records: Sequence[TrialRecord]) -> None:
        """Count the trials of earlier sessions, and print a line on them."""
        for record in records:
            self._count(record)
        if records:
            best = (f"best {name} {objective.text(value)}" for name, (objective, value, _) in self._best.items())
            self.say(f"continuing after {', '.join((self._states(), *best))}")

    def trial(self, record: TrialRecord) -> None:
        """Count a trial, and print it unless it was rejected or its plan was trained before."""
        self._count(record)
        if record.same_as is not None or record.state == "rejected":
            return
        result = self._format_values(record.values) or record.reason
        sentence = describe(record.plan) if record.plan else ""
        self.say(f"trial {record.trial} {record.state}: {result} | {sentence}")

    def front(self, area: float, rung: int, gain: float | None) -> None:
        """Show the front's hypervolume over time, what it was scored on, and what the rest of the time may add."""
        if rung != self._rung:
            self._rung, self._areas = rung, []
        self._areas.append(area)
        on = "all samples" if rung == 0 else f"1/{2**rung} of the samples"
        self._front = f"front: hypervolume {area:.3f} on {on}"
        if gain is not None:
            self._front += f", expected to grow by {gain:.3f} until the end"

    def close(self) -> None:
        """Remove the panel."""
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
            for objective in self._objectives:
                self._compare_with_best(objective, record)

    def _compare_with_best(self, objective: Objective, record: TrialRecord) -> None:
        value = record.values[objective.name]
        best = self._best.get(objective.name)
        if best is None or objective.sign * value < objective.sign * best[1]:
            self._best[objective.name] = (objective, value, record.trial)

    def _format_values(self, values: Mapping[str, float]) -> str:
        return ", ".join(
            f"{objective.name} {objective.text(values[objective.name])}"
            for objective in self._objectives
            if objective.name in values
        )

    def _states(self) -> str:
        return ", ".join(f"{self._counts[state]} {state}" for state in STATES if self._counts[state]) or "no trial yet"

    def _left(self) -> str:
        parts = [self._states(), *([self._front] if self._front else [])]
        if self._end is not None:
            parts.insert(0, f"{format_seconds(max(0.0, self._end - time.monotonic()))} left")
        return "; ".join(parts)

    def _panel(self) -> Group:
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(self._step), ProgressBar(total=max(self._of, 1e-9), completed=self._done, width=40))
        table.add_row(Text("study"), Text(self._left()))
        if self._areas:
            table.add_row(Text("hypervolume"), Text(_sparkline(self._areas)))
        for objective, value, trial in self._best.values():
            table.add_row(Text(f"best {objective.name}"), Text(f"{objective.text(value)} (trial {trial})"))
        return Group(table)


def _sparkline(values: Sequence[float]) -> str:
    """Return values over time as bars, from the lowest to the highest."""
    places = [round(place * (len(values) - 1) / (MOST_BARS - 1)) for place in range(MOST_BARS)]
    shown = [values[place] for place in places] if len(values) > MOST_BARS else list(values)
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)
