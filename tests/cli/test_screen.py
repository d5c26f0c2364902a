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
from tuner.plan.parts import EditTraits, TailEdit
from tuner.results.records.baseline import Baseline
from tuner.results.run import Run
from tuner.task.copies import doubts

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


def test_scores_that_are_too_good_are_doubted_again_without_names_of_files() -> None:
    told = "warning: 9 of the 9 samples of local.test were taken in the same session, so scores are too high"
    noted = (f"{told}; give each session to one of them", "warning: 2 files were changed")
    for text in (shown(replace(RUN, info=replace(RUN.info, notes=noted))), "\n".join(doubts(noted))):
        assert told in text
        assert "give each session" not in text
        assert "2 files were changed" not in text


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
    assert "with --pick safest it exports trial 11: keeps most of the known classes, of those worth a look" in shown(
        run
    )


@pytest.mark.parametrize("name", ["digits", "exits", "signals"])
def test_at_80_columns_a_row_is_a_line_and_no_figure_is_divided(name: str) -> None:
    written, run = StringIO(), Run.open(OLD / name / "run")
    print_run(run, Console(width=80, file=written), whole=True, details=True)
    text = written.getvalue()
    screen = text.split("\n\n", maxsplit=1)[0]
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"\d\n *(%|s\b|ms|MB|kB|MFLOP|points)", text) is None
    for trial in run.front:
        row = next(line for line in screen.splitlines() if re.search(rf"[a-z] +(→ )?{trial}  ", line))
        assert row.endswith(("B", "FLOP", "e+03"))


def test_what_is_said_of_the_front_is_the_same_whichever_rows_are_shown() -> None:
    best, near, poor = (0.9, 0.9, 9.0, 1e8), (0.9, 0.899, 8.9, 1e8), (0.5, 0.2, 1.0, 9e7)
    run = replace(front_of(best, near, poor, (0.9, 0.898, 8.95, 1e8), (0.4, 0.2, 1.1, 9e7)), shortlist=(0,))
    texts = [shown(run, whole=whole) for whole in (False, True)]
    told = [re.findall(r"^.*Trial 0 is picked.*$", text, re.MULTILINE) for text in texts]
    assert told[0] == told[1] != []
    assert "The next faster, trial 2, trains in 1 s instead of 9 s, for 40.0 points less on yours." in told[0][0]
    assert (
        "with --pick fastest it exports trial 1: least time to train, within a standard error of the best" in texts[0]
    )
    left = "2 more of the front, which --all shows: 1 near to one that is listed; 1 surely less accurate than the best"
    details = shown(run, details=True)
    assert left in details
    table = details.partition("of the front, which --all shows")[0].partition("\n\n")[2]
    assert re.findall(r"^ *(?:→ )?(\d)  ", table, re.MULTILINE) == ["0", "1", "2"], (
        "what the texts above name has a row"
    )
    assert "more of the front" not in shown(run, details=True, whole=True)


def test_without_known_classes_nothing_is_said_of_the_area_of_the_front() -> None:
    info = replace(RUN.info, strategies=("one", "other"))
    records = tuple(replace(one, strategies=(("one", "other")[at % 2],)) for at, one in enumerate(RUN.records))
    run = replace(RUN, info=info, records=records)
    assert "front lost without it" in shown(run, details=True)
    scores = {one.trial: {name: one.values[name] for name in one.values if "global" not in name} for one in records}
    alone = replace(run, records=tuple(replace(one, values=scores[one.trial]) for one in records))
    assert "front lost without it" not in shown(alone, details=True)
    assert "a trial that continues another has those of the other, too" in shown(alone, details=True)


def test_a_head_in_closed_form_and_computing_features_have_one_name() -> None:
    plan = RUN.record(0).plan
    assert plan is not None
    edit = TailEdit.of("closed-form", EditTraits(solves=True))
    solved = replace(plan, split=3, shape=(edit,))
    spent = replace(RUN.info.spent, phases={"features": 10.0, "starting": 1.0}, seconds=11.0)
    values = RUN.record(0).values | {"fill_seconds": 3.7}
    records = tuple(replace(one, plan=solved, values=one.values | values) for one in RUN.records)
    text = shown(replace(RUN, records=records, info=replace(RUN.info, spent=spent)), details=True)
    assert re.search(r"^head in closed form +→ 0 ", text, re.MULTILINE)
    assert "→ Trial 0 computes the head in closed form from 180 of your samples" in text
    assert "0: solve the head in closed form for 180 local" in text
    assert "closed-form" not in text
    assert "on stored features, computed once for all trials in 10.0 s" in " ".join(text.split())
    assert "computing features for all trials 10.0 s" in text


def test_a_baseline_of_fewer_samples_says_so() -> None:
    probe = Baseline("linear probe", {"local_accuracy": 0.5}, share=0.5)
    run = replace(RUN, info=replace(RUN.info, baselines=(RUN.info.untouched, probe)))
    assert re.search(r"; a linear probe 50.0 % on \d+ of them;", shown(run))


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
