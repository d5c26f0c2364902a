"""Progress of a study, as people see it."""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tuner.cli.run import continue_command
from tuner.commands.tune import progress as shown
from tuner.commands.tune.progress import Progress
from tuner.results.records.baseline import Baseline
from tuner.results.records.config import RunRequest
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.listener import WRITING

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def record(trial: int, accuracy: float, seconds: float, **constraint: float) -> TrialRecord:
    values = {"local_accuracy": accuracy, "global_accuracy": 0.5, "train_seconds": seconds, "peak_bytes": 1e6}
    return TrialRecord(trial, "done", None, values=values, constraint=constraint)


def test_the_panel_appears_with_the_first_phase_and_is_removed_at_the_end() -> None:
    out = StringIO()
    progress = Progress(Console(file=out, force_terminal=True, width=100))
    progress.begins(Path("run"))
    progress.ends(time.monotonic() + 60)
    assert out.getvalue() == ""  # an error before leaves the cursor as it was
    progress.phase("filling the feature store")
    progress.step("features", 1, 2)
    progress.close()
    text = out.getvalue()
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert "s left; no trial yet" in text
    assert "filling the feature store: features" in text


def test_earlier_trials_are_counted_and_the_best_of_them_shown() -> None:
    out = StringIO()
    progress = Progress(Console(file=out, width=200))
    untouched = Baseline("untouched", {"local_accuracy": 0.0})
    for samples in (15, 30):
        progress.baseline(untouched, OBJECTIVES[:1], {"local": samples})
    rejected = TrialRecord(2, "rejected", None, reason="--time: needs more")
    progress.resumed([record(0, 0.7, 3.0), record(1, 0.8, 5.0), rejected, record(3, 0.9, 9.0, memory=0.5)])
    progress.trial(record(4, 0.75, 1.0))
    assert out.getvalue().splitlines() == [
        "untouched model: local_accuracy 0.0 % (0–20) · on 15 local samples",
        "untouched model: local_accuracy 0.0 % (0–11) · on 30 local samples",
        "continuing after 3 done, 1 rejected, best local accuracy 80.0 %",
        "trial 4: yours 75.0 %",
    ]


def test_in_a_notebook_one_line_replaces_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    display, out = pytest.importorskip("IPython.display"), StringIO()
    cell = list[str]()

    class Handle:
        def update(self, content: dict[str, str], *, raw: bool) -> None:
            assert raw
            cell[-1] = content["text/plain"]

    def shown_once(content: dict[str, str], **_options: object) -> Handle:
        cell.append(content["text/plain"])
        return Handle()

    monkeypatch.setattr(display, "display", shown_once)
    progress = Progress(Console(file=out), notebook=True)
    progress.ends(None)
    progress.baseline(Baseline("untouched", {"local_accuracy": 0.0}), OBJECTIVES[:1], {"local": 30})
    progress.begins(Path("run"))
    progress.phase("trying plans")
    progress.step("training", 1, 4)
    progress.phase("promoting")
    progress.trial(record(0, 0.75, 1.0))
    assert cell == ["promoting · 1 done · best local accuracy 75.0 %, trial 0"]
    progress.say("warning: few samples")
    progress.say("warning: few samples")
    progress.phase(WRITING)  # what comes next in an export; an end has no next
    progress.close()
    assert cell == ["ended · 1 done · best local accuracy 75.0 %, trial 0"]
    untouched = "untouched model: local_accuracy 0.0 % (0–11) · on 30 local samples"
    assert out.getvalue().splitlines() == [untouched, "warning: few samples"]


def test_a_new_run_prints_nothing_of_earlier_trials() -> None:
    out = StringIO()
    Progress(Console(file=out)).resumed([])
    assert out.getvalue() == ""


def test_the_fronts_hypervolume_is_shown_over_time_and_anew_on_a_higher_rung() -> None:
    out = StringIO()
    console = Console(file=out, width=200)
    progress = Progress(console, verbose=True)
    for area in (0.1, 0.2):
        progress.front(area, 2, None)
    for area in [0.30, *[0.36] * 60, 0.40]:
        progress.front(area, 0, 0.0123)
    console.print(*progress.lines(), sep="\n")
    text = out.getvalue()
    assert "front: hypervolume 0.400 on all samples, may grow by 0.012 until the end" in text
    line = next(line for line in text.splitlines() if line.startswith("  hypervolume")).split()[1]
    assert line == "▁" + "▅" * 38 + "█"
    progress.front(0.1, 3, None)
    console.print(*progress.lines(), sep="\n")
    assert "front: hypervolume 0.100 on 1/8 of the samples" in out.getvalue()


class Terminal:
    """A pseudo-terminal of 80 columns: what it was sent, and when."""

    def __init__(self) -> None:
        self.own, self.theirs = pty.openpty()
        self.text, self.times = "", [time.monotonic()]

    def listen(self, until: float) -> None:
        """Read until a clock (`time.monotonic`) or until nobody writes any more."""
        while (left := until - time.monotonic()) > 0:
            if select.select([self.own], [], [], left)[0]:
                try:
                    self.text += os.read(self.own, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    return
                self.times.append(time.monotonic())

    @property
    def longest_silence(self) -> float:
        """Longest time between two outputs, in seconds."""
        return max(after - before for before, after in zip(self.times, self.times[1:], strict=False))


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    for handle in (made.own, made.theirs):
        if handle >= 0:
            os.close(handle)


def test_a_phase_that_says_nothing_moves_on_a_terminal(terminal: Terminal) -> None:
    with os.fdopen(terminal.theirs, "w", closefd=False) as file:
        progress = Progress(Console(file=file, force_terminal=True, width=80))
        progress.step("training on rung 2", 5, 5)  # what follows the last step is part of the phase
        progress.phase("trying plans")
        terminal.listen(time.monotonic() + 1.5)
        progress.close()
    assert "trying plans" in terminal.text
    assert len(set("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") & set(terminal.text)) > 2
    assert terminal.longest_silence < 1.0


def test_off_a_terminal_silence_ends_after_a_while_with_the_phase_and_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "PLAIN_SECONDS", 0.05)
    out = StringIO()
    progress = Progress(Console(file=out, width=200))
    progress.phase("trying plans")
    progress.step("training on rung 2", 3, 70)
    while out.getvalue().count("\n") < 3:  # one long epoch
        time.sleep(0.01)
    progress.close()
    first, *others = out.getvalue().splitlines()
    assert first.startswith("trying plans: each plan is trained")
    assert all(re.fullmatch(r"trying plans for [\d.]+ s; training on rung 2: 3 of 70", line) for line in others), others
    time.sleep(0.1)
    assert len(out.getvalue().splitlines()) == 1 + len(others)  # nothing after the end


def test_who_is_not_verbose_hears_of_the_front_where_waiting_hardly_pays() -> None:
    out = StringIO()
    console = Console(file=out, width=200)
    progress = Progress(console)
    progress.front(0.4, 0, 0.1)
    console.print(*progress.lines(), sep="\n")
    assert out.getvalue().strip() == ""
    progress.front(0.4, 0, 0.0001)
    console.print(*progress.lines(), sep="\n")
    assert "hardly any gain is expected from here" in out.getvalue()


def test_the_first_seconds_of_a_phase_are_told_with_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "FIRST_SECONDS", 0.05)
    out = StringIO()
    progress = Progress(Console(file=out, width=200))
    progress.phase("opening the task")
    progress.step("files", 3, 70)
    while out.getvalue().count("\n") < 2:
        time.sleep(0.01)
    time.sleep(0.1)
    progress.close()
    first, again = out.getvalue().splitlines()  # then no line for a longer while
    assert first.startswith("opening the task: reading ")
    assert again.startswith("opening the task for ")
    assert again.endswith("; files: 3 of 70; next: looking at the model")


def test_a_task_that_hangs_shows_signs_of_life_and_ctrl_c_gives_the_command_that_continues(
    tmp_path: Path, terminal: Terminal
) -> None:
    """The task sleeps while it is loaded."""
    (tmp_path / "my task.py").write_text("import time\n\ndef load():\n    time.sleep(60)\n")
    words = ["run", "my task.py:load", "--time", "90s", "--seed", "3", "--out", "a run"]
    command = [sys.executable, "-m", "tuner", *words]
    environment = {**os.environ, "TUNER_CACHE": str(tmp_path), "TERM": "xterm"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=terminal.theirs) as process:
        os.close(terminal.theirs)
        terminal.theirs = -1
        while "opening the task" not in terminal.text and process.poll() is None:
            terminal.listen(time.monotonic() + 0.2)
        terminal.times = [time.monotonic()]
        terminal.listen(time.monotonic() + 2)
        process.send_signal(signal.SIGINT)
        terminal.listen(time.monotonic() + 20)
        assert process.wait() == 130
    assert terminal.longest_silence < 1.5
    assert shlex.split(terminal.text.splitlines()[-1]) == ["tuner", *words]


def test_the_command_that_continues_keeps_the_options_that_were_given(tmp_path: Path) -> None:
    plugins = (Path("a.py"), Path("b c.py"))
    request = RunRequest(memory="1GB", deterministic=True, plugins=plugins, earlier="none", study="mysql://me:pw@h/db")
    text = continue_command("digits", request, tmp_path / "my run", as_json=True)
    assert text == (
        "tuner run digits --memory 1GB --deterministic --plugin a.py --plugin 'b c.py' --from none "
        f"--out '{tmp_path}/my run' --resume --study 'mysql://me:***@h/db' --json"
    )
