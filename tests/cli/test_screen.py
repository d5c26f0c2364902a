"""The screen that a run ends with: the answer first, few rows in plain words, and the rest by --details."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tuner.cli.app import call
from tuner.cli.text.run import print_run
from tuner.cli.text.screen import MOST_ROWS
from tuner.results.run import Run

OLD = Path(__file__).parent.parent / "fixtures"
RUN = Run.open(OLD / "digits" / "run")
#: Words that say nothing to somebody who begins.
TERMS = ("α", "realised", "ridge", "rung", "codec", "cache", "calibration", "hypervolume", "leave-one-out", "other ")


def shown(run: Run, **asked: Any) -> str:
    written = StringIO()
    print_run(run, Console(width=200, file=written), **asked)
    return written.getvalue()


def front_of(*values: tuple[float, float, float, float]) -> Run:
    """Return a run whose front has these local and global accuracies, seconds and bytes; the first is the best."""
    names = ("local_accuracy", "global_accuracy", "train_seconds", "peak_bytes")
    like = RUN.record(RUN.front[0])
    records = tuple(
        replace(like, trial=trial, values=like.values | dict(zip(names, own, strict=True)))
        for trial, own in enumerate(values)
    )
    front = tuple(range(len(values)))
    return replace(RUN, records=records, front=front, shortlist=front, best=0, knee=0)


def rows(text: str) -> list[int]:
    """Return the trials of the table."""
    return [int(number) for number in re.findall(r"^last 2 blocks +(?:→ )?(\d+) ", text, re.MULTILINE)]


@pytest.mark.parametrize("name", ["digits", "exits", "signals"])
def test_the_answer_comes_first_in_plain_words_and_what_to_type_last(name: str) -> None:
    lines = shown(Run.open(OLD / name / "run")).splitlines()
    assert lines[0].startswith("Your ")
    assert " right (" in lines[0]
    assert len(lines) <= 24
    assert lines[-1].startswith("more: tuner show ")
    assert any(line.startswith("next: tuner export ") for line in lines)
    assert [term for term in TERMS if term in "\n".join(lines)] == []


def test_a_trial_that_is_beaten_in_all_that_is_shown_has_no_row() -> None:
    best, dearer = (0.9, 0.9, 1.0, 1e8), (0.9, 0.9, 2.0, 2e8)
    run = front_of(best, dearer, (0.8, 0.95, 1.0, 1e8))  # what made the second a member is no column
    assert rows(shown(run)) == [0, 2]
    assert rows(shown(run, whole=True)) == [0, 1, 2]


def test_there_are_few_rows_and_the_best_is_one() -> None:
    run = front_of(*((0.9 - 0.02 * at, 0.5 + 0.04 * at, 1.0 + at, 1e8) for at in range(12)))
    found = rows(shown(run))
    assert 3 <= len(found) <= MOST_ROWS
    assert 0 in found
    assert "with --pick safest it exports trial 11: keeps most of what the model knew, of those worth a look" in shown(
        run
    )


def test_details_follow_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", str(RUN.folder)]) == 0
    screen = capsys.readouterr().out
    assert call(["show", str(RUN.folder), "--details"]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith(screen)
    assert "α" in whole
    assert "picks: --pick best is trial" in whole
    assert call(["show", str(RUN.folder), "--details", "--trials"]) == 2


def test_errors_of_few_estimates_are_not_told() -> None:
    records = tuple(one for one in RUN.records if one.trial == RUN.best)
    assert "estimates of costs" in shown(RUN, details=True)
    assert "estimates of costs" not in shown(replace(RUN, records=records, front=(RUN.best or 0,)), details=True)
