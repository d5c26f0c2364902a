"""Progress of a study, as people see it."""

import time
from io import StringIO

from rich.console import Console

from tuner.commands.progress import Progress
from tuner.results.objectives import OBJECTIVES
from tuner.results.records import TrialRecord

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def record(trial: int, accuracy: float, seconds: float, **constraint: float) -> TrialRecord:
    values = {"local_accuracy": accuracy, "global_accuracy": 0.5, "train_seconds": seconds, "peak_bytes": 1e6}
    return TrialRecord(trial, "done", None, values=values, constraint=constraint)


def test_the_panel_appears_with_the_limits_and_is_removed_at_the_end() -> None:
    out = StringIO()
    progress = Progress(Console(file=out, force_terminal=True, width=100))
    progress.close()
    assert out.getvalue() == ""  # an error before leaves the cursor as it was
    progress.ends(time.monotonic() + 60)
    progress.step("features", 1, 2)
    progress.close()
    text = out.getvalue()
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert "s left; no trial yet" in text


def test_earlier_trials_are_counted_and_the_best_of_them_shown() -> None:
    out = StringIO()
    progress = Progress(Console(file=out, width=200))
    progress.untouched({"local_accuracy": 0.0}, OBJECTIVES[:1])
    rejected = TrialRecord(2, "rejected", None, reason="--time: needs more")
    progress.resumed([record(0, 0.7, 3.0), record(1, 0.8, 5.0), rejected, record(3, 0.9, 9.0, memory=0.5)])
    progress.trial(record(4, 0.75, 1.0))
    assert out.getvalue().splitlines() == [
        "untouched model: local_accuracy 0.0 %",
        "continuing after 3 done, 1 rejected, best local_accuracy 80.0 %",
        "trial 4 done: local_accuracy 75.0 % | ",
    ]


def test_a_new_run_prints_nothing_of_earlier_trials() -> None:
    out = StringIO()
    Progress(Console(file=out)).resumed([])
    assert out.getvalue() == ""


def test_the_fronts_hypervolume_is_shown_over_time_and_anew_on_a_higher_rung() -> None:
    out = StringIO()
    console = Console(file=out, width=200)
    progress = Progress(console)
    for area in (0.1, 0.2):
        progress.front(area, 2, None)
    for area in [0.30, *[0.36] * 60, 0.40]:
        progress.front(area, 0, 0.0123)
    console.print(progress._panel())
    shown = out.getvalue()
    assert "front: hypervolume 0.400 on all samples, expected to grow by 0.012 until the end" in shown
    line = next(line for line in shown.splitlines() if line.startswith("hypervolume")).split()[1]
    assert line == "▁" + "▅" * 38 + "█"
    progress.front(0.1, 3, None)
    console.print(progress._panel())
    assert "front: hypervolume 0.100 on 1/8 of the samples" in out.getvalue()
