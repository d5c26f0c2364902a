"""Calls of plugins' code in this process: their time limit, what they may not end, and how often they may fail."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tuner.backends.base import Backend, Session
from tuner.backends.extensions import Extensions
from tuner.errors import PluginError
from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo
from tuner.plan.parts import RuntimePlan, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import StrategyError, compose
from tuner.plugin.core import build_host
from tuner.plugin.hookspecs import hookimpl
from tuner.plugin.knobs import Draw
from tuner.plugin.load import calls
from tuner.plugin.load.calls import OverdueError, PluginCalls, limited, uncounted
from tuner.plugin.sources import preferred_values
from tuner.plugin.strategy import Strategy
from tuner.results.records.trial import TrialRecord
from tuner.task import Task

LONG = 60.0  # what never ends takes an hour
PLAN = TrialPlan(model=example_model(4), task=example_task())


def hang() -> None:
    time.sleep(3600)


def hang_on() -> None:
    """Go on after each of three interruptions."""
    for _ in range(3):
        with suppress(BaseException):
            time.sleep(3600)
    time.sleep(3600)


def leave() -> None:
    raise SystemExit(3)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_SECONDS", "AGAIN_SECONDS"):
        monkeypatch.setattr(calls, name, 0.05)
    for name in ("CALL_SECONDS", "IMPORT_SECONDS", "OBSERVER_SECONDS"):
        monkeypatch.setattr(f"tuner.plugin.host.{name}", 0.05)


@pytest.mark.parametrize("function", [hang, hang_on])
def test_a_call_that_hangs_is_interrupted_also_where_it_catches_that(short: None, function: Callable[[], None]) -> None:
    started = time.monotonic()
    with pytest.raises(PluginError, match=r"plugin p: supports took longer than 0\.05 s( \(.*\.py, line \d+\))?$"):
        PluginCalls().run("p", "supports", 0.05, function)
    assert time.monotonic() - started < LONG


def test_code_that_ends_the_process_is_a_fault_and_three_end_the_plugin(caplog: pytest.LogCaptureFixture) -> None:
    made = PluginCalls()
    seen: list[int] = []
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(PluginError, match=r"raised SystemExit: 3 \(test_calls\.py"):
                made.run("p", "tuner_trial_done", 1.0, leave)
    assert made.is_out("p")
    assert not made.is_out("other")
    assert "it failed 3 times and takes no further part" in caplog.records[-1].getMessage()
    with pytest.raises(PluginError, match="takes no further part"):
        made.run("p", "tuner_trial_done", 1.0, seen.append, 1)
    assert not seen


def test_the_user_may_still_interrupt() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    made = PluginCalls()
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            made.run("p", "supports", 1.0, interrupted)
    assert not made.is_out("p")


def test_a_call_ends_with_the_run() -> None:
    assert PluginCalls().within(5.0) == 5.0
    assert 0.5 < PluginCalls(time.monotonic() + 1.0).within(5.0) <= 1.0
    assert PluginCalls(time.monotonic() - 1.0).within(5.0) == calls.LEAST_SECONDS


def test_a_limit_inside_another_gives_the_timer_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with limited(30.0):
        with limited(10.0):
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 10
        assert 10 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30
    with pytest.raises(OverdueError), limited(0.05), limited(30.0):
        time.sleep(3600)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
    with limited(0.05):  # work of our own does not count
        with uncounted():
            time.sleep(0.1)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.05


def test_what_is_printed_goes_to_stderr_in_any_thread(capsys: pytest.CaptureFixture[str]) -> None:
    def chatter() -> None:
        with limited(1.0):
            print("a word")  # noqa: T201 - what it is about

    chatter()
    other = threading.Thread(target=chatter)
    other.start()
    other.join()
    assert capsys.readouterr() == ("", "a word\na word\n")


def test_an_import_that_hangs_is_refused_and_named(short: None, tmp_path: Path) -> None:
    path = tmp_path / "sleepy.py"
    path.write_text("import time\n\ntime.sleep(3600)\n")
    (plugin,) = build_host(local=[path], installed=False).refused
    assert plugin.refused == "its import took longer than 0.05 s (sleepy.py, line 3)"


def test_two_spellings_of_a_path_are_one_plugin(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "link.py").symlink_to(tmp_path / "mine.py")
    spellings = [tmp_path / "mine.py", tmp_path / "more" / ".." / "mine.py", tmp_path / "link.py"]
    host = build_host(local=spellings, installed=False)
    assert len(host.local) == 1
    assert host.refused == []


def test_a_plugin_that_the_main_process_refused_is_not_loaded_again(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("")
    host = build_host(local=[tmp_path / "bad.py"], installed=False, refused=["bad"])
    assert [plugin.name for plugin in host.plugins] == ["core"]


class Sleeps(Strategy[None]):
    """A strategy one of whose methods does not return."""

    name, stage = "sleeps", Stage.SHAPE

    def __init__(self, method: str, what: Callable[[], None]) -> None:
        self._method, self._what = method, what

    def sample(self, draw: Draw, model: ModelInfo) -> None:  # noqa: ARG002 - the signature is the contract's
        if self._method == "sample":
            self._what()

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        if self._method == "apply":
            self._what()
        return plan


@pytest.mark.parametrize("method", ["sample", "apply"])
def test_a_strategy_that_hangs_or_leaves_is_named_with_its_line(short: None, method: str) -> None:
    for what, said in ((hang, "took longer than"), (leave, "raised SystemExit: 3")):
        with pytest.raises(StrategyError, match=rf"strategy 'sleeps': {method} {said}") as caught:
            compose([Sleeps(method, what)], preferred_values({}), PLAN.model, PLAN.task, seconds=0.05)
        assert caught.value.ends


class Sulks(Backend):
    """A backend that never says what it supports, or says it wrongly."""

    name = "sulks"

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what

    def supports(self, plan: TrialPlan) -> str | None:  # noqa: ARG002 - the signature is the contract's
        return self._what()  # type: ignore[return-value]  # the mistake under test

    def open(self, task: Task, extensions: Extensions) -> Session:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("what", "said", "later"),
    [
        (hang, "supports took longer than", "takes no further part"),
        (leave, "supports raised SystemExit: 3", "takes no further part"),
        (lambda: 3, "must return a reason or None, but it returned a int", "returned a int"),
    ],
)
def test_a_backend_that_fails_to_say_what_it_supports_carries_nothing_out(
    short: None, what: Callable[[], object], said: str, later: str
) -> None:
    class Plugin:
        @hookimpl
        def tuner_backends(self) -> list[Backend]:
            return [Sulks(what)]

    host = build_host({"p": Plugin()}, installed=False)
    plan = TrialPlan(model=PLAN.model, task=PLAN.task, runtime=RuntimePlan("sulks"))
    reasons = [host.supports(plan) or "" for _ in range(4)]
    assert said in reasons[0]
    assert later in reasons[3]


def test_an_observer_that_hangs_is_called_three_times(short: None) -> None:
    seen: list[int] = []

    class Observer:
        @hookimpl
        def tuner_trial_done(self) -> None:
            seen.append(1)
            hang()

    host = build_host({"p": Observer()}, installed=False)
    for _ in range(5):
        host.trial_done("run", TrialRecord(0, "done", None))
    assert len(seen) == 3


def test_a_copy_that_a_plugin_forks_ends_with_the_call() -> None:
    with limited(5):
        copy = os.fork()
    assert copy > 0  # only one of them comes here
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 1
