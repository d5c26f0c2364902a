"""What happens in a run, as events, in the log, and on stderr where somebody looks."""

import inspect
import logging
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tuner import events
from tuner.commands.tune.progress import Progress, progress_shown
from tuner.events import Event, Events, Finished, FrontChanged, Message, PhaseStarted, Step, TrialFinished, log
from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.listener import FILLING, TRYING, Listener, together

OLD = Path(__file__).parent / "fixtures" / "digits" / "run"
FAILED = TrialRecord(7, "failed", None, reason="ValueError: this is no tensor")


def test_a_study_is_told_in_events_and_a_front_that_stays_is_none() -> None:
    heard = list[Event]()
    study, run = Events(heard.append), Run.open(OLD)
    study.phase(FILLING)
    study.phase(FILLING)
    study.step("features", 1, 2)
    study.say("warning: slow")
    study.trial(FAILED)
    for area in (0.5, 0.5, 0.6):
        study.front(area, 0, None)
    study.finished(run)
    assert heard == [
        PhaseStarted(FILLING),
        Step(FILLING, "features", 1, 2),
        Message("warning: slow"),
        TrialFinished(FAILED),
        FrontChanged(0.5, 0, None),
        FrontChanged(0.6, 0, None),
        Finished(run),
    ]


def test_every_report_of_a_study_reaches_every_listener() -> None:
    reached = list[tuple[str, str]]()

    def noting(which: str) -> Listener:
        listener = Listener()
        for name in reports:
            setattr(listener, name, lambda *_, name=name: reached.append((which, name)))
        return listener

    reports = [name for name, _ in inspect.getmembers(Listener, inspect.isfunction)]
    both = together([noting("first"), noting("second")])
    for name in reports:
        getattr(both, name)(*[None] * (len(inspect.signature(getattr(Listener, name)).parameters) - 1))
    assert reached == [(which, name) for name in reports for which in ("first", "second")]
    assert len(reports) >= 8


def test_the_log_has_every_event_at_a_level_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    run = Run.open(OLD)
    with caplog.at_level(logging.DEBUG, logger="tuner.run"):
        study = Events(log)
        study.phase(TRYING)
        study.step("training", 3, 8)
        study.say("warning: the disk is full")
        study.baseline(Baseline("untouched", {"local_accuracy": 0.25}), OBJECTIVES, {"local": 8})
        study.trial(run.records[0])
        study.trial(FAILED)
        study.front(0.25, 1, None)
        study.finished(run)
    levels = [(record.levelname, record.getMessage().split(" | ")[0]) for record in caplog.records]
    assert levels[:4] == [
        ("INFO", f"phase: {TRYING}"),
        ("DEBUG", f"{TRYING}: training: 3 of 8"),
        ("WARNING", "the disk is full"),
        ("INFO", "untouched: local_accuracy=0.25"),
    ]
    assert levels[4][1].startswith("trial 0 done: train_seconds=0.2567, ")
    assert levels[5] == ("WARNING", "trial 7 failed: ValueError: this is no tensor")
    assert levels[6:] == [("INFO", "front: hypervolume 0.2500 on rung 1"), ("INFO", f"finished: {run!r}")]
    assert {record.name for record in caplog.records} == {"tuner.run"}


def test_a_program_that_configures_no_logging_sees_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    log(Message("warning: the disk is full"))
    assert capfd.readouterr() == ("", "")


def test_progress_is_shown_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", StringIO())
    assert progress_shown(anywhere=False) == []
    assert [type(shown) for shown in progress_shown(anywhere=True)] == [Progress]
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert [type(shown) for shown in progress_shown(anywhere=False)] == [Progress]


def test_every_event_is_offered_and_can_be_compared() -> None:
    offered: list[Any] = [getattr(events, name) for name in events.__all__ if name != "Event"]
    assert set(offered) == set(Event.__args__)
    assert all(kind.__dataclass_params__.frozen for kind in offered)
