"""Progress of a study for people, on stderr: a live panel on a terminal, plain lines elsewhere."""

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from tuner.machine.awake import CLOCK
from tuner.plan.text import describe, plain
from tuner.printable import printable, wrapped_at
from tuner.results.records.baseline import UNTOUCHED, Baseline
from tuner.results.records.trial import STATES, TrialRecord, eligible
from tuner.results.scores.objectives import SCORES, Objective
from tuner.search.listener import (
    CROSS_VALIDATING,
    EXPORT,
    FILLING,
    FINISHING,
    LOOKING,
    MEASURING,
    OPENING,
    SCORING,
    TRYING,
    Listener,
)
from tuner.units import format_seconds

REFRESH_PER_SECOND = 4
#: Off a terminal, a line is printed after so much silence: of a phase's first seconds, and later.
FIRST_SECONDS, PLAIN_SECONDS = 3.0, 8.0
#: What each phase does, for people, and which comes next.
PHASES = {
    OPENING: ("reading it, and looking at every file", LOOKING),
    LOOKING: ("loading PyTorch and the model, which is pretrained first where the task says so", MEASURING),
    MEASURING: ("how fast it computes features and trains", SCORING),
    SCORING: ("what it is right in before anything trains", FILLING),
    FILLING: ("what the frozen blocks compute of each sample, once for all trials", TRYING),
    CROSS_VALIDATING: (
        "each is trained four more times, without another fourth of your samples, and scored on that",
        FINISHING,
    ),
    TRYING: ("each plan is trained, and scored on your samples (yours) and on the known classes (known)", FINISHING),
}
_OF_EXPORT = (
    "loading PyTorch and the model; the trial's own weights predict the samples that judged it",
    "training once more, on all of your samples",
    "loading PyTorch's exporter, and writing ONNX",
    "ONNX Runtime predicts every sample, and PyTorch some of them for a check",
)
PHASES |= dict(zip(EXPORT, zip(_OF_EXPORT, (*EXPORT[1:], "the bundle"), strict=True), strict=True))
#: Growth of the front that is hardly worth waiting for.
HARDLY = 0.002
BAR_WIDTH = 20
BARS, MOST_BARS = "▁▂▃▄▅▆▇█", 40
#: Values by the words before them in a line; of costs, their unit says enough.
WORDS = {"local_accuracy": "yours ", "global_accuracy": "known ", "train_seconds": "", "peak_bytes": ""}


class Progress(Listener):
    """Shows the phase and how far it is, the time left, the number of trials by state and the best values so far.

    The panel appears with the first phase: an error before that leaves the terminal as it was.

    Args:
        console: Console to show it on; stderr where it is not given.
        verbose: Whether to print trials that were rejected, too.
        notebook: Whether one line of a notebook shows it, which replaces itself.

    Attributes:
        folder: The run's folder; None until it is known.
    """

    def __init__(self, console: Console | None = None, *, verbose: bool = False, notebook: bool = False) -> None:
        self.folder: Path | None = None
        self._console = console or Console(stderr=True)
        self._verbose, self._notebook = verbose, notebook
        self._end: float | None = None
        self._counts: Counter[str] = Counter()
        self._best: dict[str, tuple[Objective, float, int, dict[str, int]]] = {}
        self._objectives: Sequence[Objective] = ()
        self._phase, self._begun_at, self._step = "", 0.0, ""
        self._announced: set[str] = set()
        self._last_line_at, self._patience = CLOCK.now(), FIRST_SECONDS
        self._panel: _Panel | _Line | None = None
        self._closed = threading.Event()
        self._reminder: threading.Thread | None = None
        self._front, self._rung, self._areas = "", -2, list[float]()

    def begins(self, folder: Path) -> None:
        """Note the run's folder."""
        self.folder = folder

    def ends(self, at: float | None) -> None:
        """Count down to a clock (`tuner.machine.awake.CLOCK`); None for no limit."""
        self._end = at

    def phase(self, name: str) -> None:
        """Show a phase, with a pulse; off a terminal, print its name the first time."""
        if name != self._phase:
            self._phase, self._begun_at = name, CLOCK.now()
        self._step = ""
        self._begin()
        if self._panel is not None:
            self._panel.show(name, name)
        elif name not in self._announced:
            self._announced.add(name)
            self.say(f"{name}: {PHASES[name][0]}" if name in PHASES else name)
            self._patience = FIRST_SECONDS

    def say(self, line: str) -> None:
        """Print a line above the panel; a warning once."""
        if line.startswith("warning: "):
            if line in self._announced:
                return
            self._announced.add(line)
        self._last_line_at, self._patience = CLOCK.now(), PLAIN_SECONDS
        width = self._console.width if self._console.is_terminal else None  # elsewhere a line stays whole
        self._console.print(wrapped_at(printable(line), width), highlight=False, markup=False, soft_wrap=True)

    def step(self, what: str, done: float, of: float) -> None:
        """Move the bar."""
        self._step = f"{what}: {done:,.0f} of {of:,.0f}"
        self._begin()
        if self._panel is not None:
            named = self._phase if what in {"", self._phase} else f"{self._phase}: {what}"
            self._panel.show(self._phase, named, done, of)

    def baseline(self, baseline: Baseline, objectives: Sequence[Objective], scored: Mapping[str, int]) -> None:
        """Print the scores of a baseline, or why it has none."""
        self._objectives = objectives
        where = " and ".join(f"{count:,} {domain}" for domain, count in scored.items() if count)
        on = f" · on {where} samples" if where and baseline.values else ""
        if not baseline.values and baseline.name in self._announced:
            return
        self._announced.add(baseline.name)
        if baseline.name == UNTOUCHED:  # by the names that scripts and --json have
            named = [(one.name, one.text(baseline.values[one.name], scored)) for one in self._scores(baseline.values)]
            self.say(f"untouched model: {', '.join(map(' '.join, named)) or baseline.note}{on}")
        elif (values := self._format_values(baseline.values, scored)) or self._verbose:
            self.say(f"{baseline.name}: {values or baseline.note}{on}")

    def resumed(self, records: Sequence[TrialRecord]) -> None:
        """Count the trials of earlier sessions, and print a line on them."""
        for record in records:
            self._count(record)
        if records:
            best = (f"best {one.title} {one.text(value, scored)}" for one, value, _, scored in self._best.values())
            self.say(f"continuing after {', '.join((self._states(), *best))}")

    def trial(self, record: TrialRecord) -> None:
        """Count a trial, and print it unless its plan was trained before; a rejected one only if verbose."""
        self._count(record)
        if self._panel is not None:
            self._panel.refresh()
        hides = self._notebook or record.state == "rejected"
        if record.same_as is not None or (hides and not self._verbose):
            return
        scored = record.plan.scored if record.plan else {}
        result = self._format_values(record.values, scored) or record.reason
        plan = record.plan
        sentence = "" if plan is None else f" · {describe(plan) if self._verbose else plain(plan)}"
        state = "" if record.state == "done" else f" {record.state}"
        self.say(f"trial {record.trial}{state}: {result}{sentence}")

    def front(self, area: float, rung: int, gain: float | None) -> None:
        """Show the front's hypervolume over time, what it was scored on, and what the rest of the time may add."""
        if rung != self._rung:
            self._rung, self._areas = rung, []
        self._areas.append(area)
        on = "all samples" if rung <= 0 else f"1/{2**rung} of the samples"
        self._front = f"front: hypervolume {area:.3f} on {on}" if self._verbose else ""
        if gain is not None and self._verbose:
            self._front += f", may grow by {gain:.3f} until the end"
        elif gain is not None and gain < HARDLY and rung <= 0:
            self._front = "hardly any gain is expected from here: Ctrl-C ends with what was found"

    def close(self) -> None:
        """Remove the panel, and print no more reminders."""
        self._closed.set()
        self._end, self._front = None, ""
        if self._reminder is not None:
            self._reminder.join()
        if self._panel is not None:
            self._panel.stop()
            self._panel = None

    def lines(self) -> Iterable[Text]:
        """Yield what the panel shows below the bar."""
        if left := self._left():
            yield Text(f"  {left}")
        if later := self._next():
            yield Text(f"  {later}")
        if self._areas and self._verbose:
            yield Text(f"  hypervolume {_sparkline(self._areas)}")
        for objective, value, trial, scored in list(self._best.values()):
            yield Text(f"  best {objective.title} {objective.text(value, scored)}, trial {trial}")

    def _begin(self) -> None:
        """Show the panel, or off a terminal begin to remind; once."""
        if self._closed.is_set() or self._panel is not None or self._reminder is not None:
            return
        if self._notebook or self._console.is_interactive:
            self._panel = _Line(self) if self._notebook else _Panel(self, self._console)
            self._panel.start()
        else:
            self._last_line_at = CLOCK.now()
            self._reminder = threading.Thread(target=self._remind, daemon=True)
            self._reminder.start()

    def _remind(self) -> None:
        """Print where the study is whenever nothing was printed for a while."""
        while not self._closed.wait(min(FIRST_SECONDS, max(0.0, self._due()))):  # a phase that begins is due earlier
            if self._due() <= 0:
                since = f"for {format_seconds(CLOCK.now() - self._begun_at)}"
                parts = [f"{self._phase} {since}".strip(), self._step, self._left(), self._next()]
                self.say("; ".join(filter(None, parts)))

    def _due(self) -> float:
        """Return the seconds until a line is due."""
        return self._last_line_at + min(self._patience, PLAIN_SECONDS) - CLOCK.now()

    def _next(self) -> str:
        """Say what comes after a phase that prepares the trials."""
        later = PHASES.get(self._phase, ("", ""))[1]
        return f"next: {later}" if later and self._phase != TRYING and not self._closed.is_set() else ""

    def _count(self, record: TrialRecord) -> None:
        if record.same_as is None:
            self._counts[record.state] += 1
        for objective in self._objectives if eligible(record) else ():
            value, best = record.values[objective.name], self._best.get(objective.name)
            if best is None or objective.sign * value < objective.sign * best[1]:
                scored = record.plan.scored if record.plan else {}
                self._best[objective.name] = (objective, value, record.trial, scored)

    def _format_values(self, values: Mapping[str, float], scored: Mapping[str, int]) -> str:
        return ", ".join(f"{_word(one)}{one.text(values[one.name], scored)}" for one in self._scores(values))

    def _scores(self, values: Mapping[str, float]) -> list[Objective]:
        return [one for one in self._objectives if one.name in values]

    def _states(self) -> str:
        counts = ", ".join(f"{self._counts[state]} {state}" for state in STATES if self._counts[state])
        return counts or ("no trial yet" if self.folder else "")  # only a run has trials

    def _left(self) -> str:
        parts = [part for part in (self._states(), self._front) if part]
        if self._end is not None:
            parts.insert(0, f"{format_seconds(max(0.0, self._end - CLOCK.now()))} left")
        return "; ".join(parts)


class _Panel(Bars):
    """A bar for the current phase, and what a study says of itself below it; rich's own thread keeps it moving."""

    def __init__(self, study: Progress, console: Console) -> None:
        self._study = study
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=BAR_WIDTH),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=REFRESH_PER_SECOND,
        )
        self._bar, self._phase = self.add_task("", total=None), ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar, and the lines below it."""
        yield self.make_tasks_table(self.tasks)
        yield from self._study.lines()

    def show(self, phase: str, what: str, done: float = 0.0, of: float = 0.0) -> None:
        """Show how much is done; a pulse where that is not known, or all is done and the phase continues."""
        if phase != self._phase:
            self._phase = phase
            self.reset(self._bar)
        bar = next(one for one in self.tasks if one.id == self._bar)
        bar.description, bar.completed = what, done  # `update` cannot take a total away, and stops the clock at it
        bar.total = of if done < of else None


class _Line:
    """The same as one line of a notebook, which replaces itself wherever the notebook is shown."""

    def __init__(self, study: Progress) -> None:
        self._study, self._doing, self._shown_at = study, "", 0.0

    def start(self) -> None:
        from IPython.display import display

        self._handle = display(self._content(), raw=True, display_id=True)  # type: ignore[no-untyped-call]  # of IPython

    def show(self, phase: str, what: str, done: float = 0.0, of: float = 0.0) -> None:
        is_new, self._doing = phase not in self._doing, f"{what} {done / of:.0%}" if done < of else what
        if is_new or CLOCK.now() - self._shown_at > 1 / REFRESH_PER_SECOND:
            self.refresh()

    def refresh(self) -> None:
        self._shown_at = CLOCK.now()
        self._handle.update(self._content(), raw=True)

    def stop(self) -> None:
        self._doing = "ended"
        self.refresh()

    def _content(self) -> dict[str, str]:
        parts = [self._doing, *(line.plain.strip() for line in self._study.lines())]
        return {"text/plain": " · ".join(filter(None, parts))}


def _word(objective: Objective) -> str:
    """Return what stands before a value in a line."""
    return f"{objective.title} " if objective.unit in SCORES else WORDS.get(objective.name, f"{objective.title} ")


def _sparkline(values: Sequence[float]) -> str:
    """Return values over time as bars, from the lowest to the highest."""
    places = [round(place * (len(values) - 1) / (MOST_BARS - 1)) for place in range(MOST_BARS)]
    shown = [values[place] for place in places] if len(values) > MOST_BARS else list(values)
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)


def progress_shown(*, anywhere: bool = False) -> list[Listener]:
    """Return what shows progress of a call from Python: with `anywhere`, also where nobody looks at stderr."""
    console = Console(stderr=True)
    if console.is_jupyter:
        return [Progress(Console(file=sys.stderr, force_jupyter=False, force_terminal=False), notebook=True)]
    return [Progress(console)] if anywhere or console.is_terminal else []
