"""The host: what plugins offer, what is refused and why, and observers."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plugin.installed import install
from tuner.cli.plugins import format_plugins
from tuner.commands.plugins import plugin_list
from tuner.errors import PluginError
from tuner.plan.info import ModelInfo
from tuner.plan.parts import Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.plugin.hookspecs import hookimpl
from tuner.plugin.host import Host
from tuner.plugin.knobs import Draw
from tuner.plugin.load.finding import Found, select
from tuner.plugin.strategy import Strategy
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import OBJECTIVES, Objective
from tuner.task import Task

CORE = {"recipe", "none", "runtime"}
RECORD = TrialRecord(0, "done", None)


class Mine(Strategy[None]):
    name, stage = "mine", Stage.SHAPE

    def sample(self, draw: Draw, model: ModelInfo) -> None: ...

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        return plan


class Nameless(Mine):
    name = "not an identifier"


class Stageless(Mine):
    stage = "shape"  # type: ignore[assignment]  # the mistake under test


def offering(**hooks: Any) -> object:
    """Return a plugin whose hooks take no arguments and return these values."""

    def implemented(value: object) -> Callable[[], object]:
        return hookimpl(lambda: value)

    return SimpleNamespace(**{name: implemented(value) for name, value in hooks.items()})


def given(plugin: object) -> Host:
    return build_host({"p": plugin}, installed=False)


def refusal(plugin: object) -> str:
    """Return why a plugin is refused; nothing of it may be left, and a good one beside it works."""
    good = offering(tuner_strategies=[Mine()])
    host = build_host({"bad": plugin, "good": good}, installed=False)
    assert [one.name for one in host.refused] == ["bad"]
    assert host.strategies.keys() == CORE | {"mine"}
    assert host.extensions("torch").lowerings == {}
    return host.refused[0].refused


def test_the_core_is_a_plugin_like_others() -> None:
    host = build_host(installed=False)
    assert [(one.name, one.origin, one.refused) for one in host.plugins] == [("core", "core", "")]
    assert host.strategies.keys() == CORE
    assert "torch" in host.backends
    assert list(host.objectives) == [*(one.name for one in OBJECTIVES), "bundle_bytes"]
    assert "digits" in host.tasks


def test_everything_a_plugin_offers_is_taken() -> None:
    objective = Objective("energy", "minimise", "J")

    def task() -> Task:
        raise NotImplementedError

    host = given(offering(tuner_strategies=[Mine()], tuner_objectives=[objective], tuner_tasks={"mine": task}))
    assert isinstance(host.strategies["mine"], Mine)
    assert host.objectives["energy"] == objective
    assert host.tasks["mine"] is task


class Misspelt:
    @hookimpl
    def tuner_trial_done(self, study: str, records: TrialRecord) -> None: ...


class OneTooMany:
    @hookimpl
    def tuner_strategies(self, model: ModelInfo) -> Iterable[Strategy[Any]]:
        raise NotImplementedError


class Raises:
    @hookimpl
    def tuner_tasks(self) -> Mapping[str, Callable[[], Task]]:
        raise OSError("no such\ndisk")


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (offering(tuner_strategy=[Mine()]), "there is no hook 'tuner_strategy' (did you mean 'tuner_strategies'?)"),
        (SimpleNamespace(tuner_task=dict), "there is no hook 'tuner_task' (did you mean 'tuner_tasks'?)"),
        (
            SimpleNamespace(tuner_tasks=dict),
            "tuner_tasks is not marked: put @tuner.hookimpl above it in plugin 'bad'",
        ),
        (
            Misspelt(),
            "tuner_trial_done has no argument 'records' (did you mean 'record'?): it takes study, record",
        ),
        (OneTooMany(), "tuner_strategies has no argument 'model': it takes no argument"),
        (Raises(), "OSError: no such disk"),
    ],
)
def test_a_hook_that_is_not_as_it_should_be_is_refused(plugin: object, reason: str) -> None:
    assert refusal(plugin) == reason


@pytest.mark.parametrize(
    ("hooks", "reason"),
    [
        ({"tuner_strategies": [Mine]}, "but one is the class Mine: give an instance: Mine()"),
        ({"tuner_strategies": 3}, "tuner_strategies returns a list of Strategy objects, but it returned 3"),
        ({"tuner_backends": ["torch"]}, "tuner_backends returns Backend objects, but one is a str"),
        ({"tuner_objectives": {"energy": "minimise"}}, "tuner_objectives returns Objective objects, but one is a str"),
        ({"tuner_tasks": ["digits"]}, "tuner_tasks returns tasks by name, but it returned a list"),
        ({"tuner_objectives": [Objective("energy", "minimise")], "tuner_tasks": 3}, "but it returned a int"),
        ({"tuner_strategies": [Nameless()]}, "name must be an identifier, but Nameless has 'not an identifier'"),
        ({"tuner_strategies": [Stageless()]}, "strategy 'mine' must set stage to a tuner.plugin.Stage, got 'shape'"),
        ({"tuner_strategies": [Mine(), Mine()]}, "it offers two strategy objects called 'mine': rename one"),
    ],
)
def test_an_offer_of_the_wrong_kind_is_refused(hooks: dict[str, object], reason: str) -> None:
    assert reason in refusal(offering(**hooks))


@pytest.mark.parametrize(
    ("hooks", "reason"),
    [
        (
            {"tuner_strategies": [Mine()]},
            "strategy 'mine' of plugin 'second' has a name that is taken by plugin 'first': rename it",
        ),
        ({"tuner_objectives": [Objective("peak_bytes", "maximise")]}, "objective 'peak_bytes' of plugin 'second'"),
        (
            {"tuner_tasks": {"digits": dict}},
            "task 'digits' of plugin 'second' has a name that is taken by plugin 'core'",
        ),
    ],
)
def test_a_name_belongs_to_whoever_came_first(hooks: dict[str, object], reason: str) -> None:
    host = build_host({"first": offering(tuner_strategies=[Mine()]), "second": offering(**hooks)}, installed=False)
    assert [one.name for one in host.refused] == ["second"]
    assert reason in host.refused[0].refused


def test_a_plugin_with_a_name_that_is_taken_leaves_the_first_at_work() -> None:
    seen: list[str] = []

    class Observer:
        @hookimpl
        def tuner_trial_done(self, study: str) -> None:
            seen.append(study)

    host = build_host({"p": Observer()}, installed=False)
    host.add(Found("p", "other 1.0", lambda: offering(tuner_strategies=[Mine()])))
    assert [one.refused for one in host.refused] == [
        "a plugin called 'p' is loaded already, from given: rename one of them"
    ]
    assert "mine" not in host.strategies
    host.trial_done("runs/one", RECORD)
    assert seen == ["runs/one"]


def test_an_observer_that_raises_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    class Careless:
        @hookimpl
        def tuner_trial_done(self) -> None:
            raise ZeroDivisionError

    class Careful:
        @hookimpl
        def tuner_trial_done(self, record: TrialRecord) -> None:
            seen.append(record)

    host = build_host({"a": Careful(), "careless": Careless(), "z": Careful()}, installed=False)
    with caplog.at_level(logging.WARNING):
        host.trial_done("runs/one", RECORD)
    assert seen == [RECORD, RECORD]
    line = Careless.tuner_trial_done.__code__.co_firstlineno + 2
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"plugin careless: tuner_trial_done raised ZeroDivisionError: (test_host.py, line {line})"]


def test_what_is_not_installed_is_named_with_the_nearest() -> None:
    host = given(offering(tuner_strategies=[Mine()]))
    with pytest.raises(PluginError, match=r"no backend 'torsh' \(did you mean 'torch'\?\); installed: .*torch"):
        host.backend("torsh")
    with pytest.raises(
        PluginError, match=r"there is no strategy 'miner' \(did you mean 'mine'\?\); installed: mine, none"
    ):
        select("strategy", ["mine", "miner"], host.strategies)
    assert select("strategy", ["mine"], host.strategies) == [host.strategies["mine"]]


BROKEN = {
    "raising": "raise RuntimeError('half installed')",
    "importing": "import a_library_nobody_has",
    "leaving": "raise SystemExit(3)",
    "unparsable": "def",
    "misspelling": "import tuner\n@tuner.hookimpl\ndef tuner_stategies():\n    return []",
}


def test_broken_plugins_are_quarantined_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in BROKEN.items():
        install(tmp_path, name, source)
    install(tmp_path, "working", "import tuner\n@tuner.hookimpl\ndef tuner_tasks():\n    return {'mine': dict}")
    monkeypatch.syspath_prepend(str(tmp_path))
    host = build_host()
    assert {one.name: one.refused for one in host.refused} == {
        "raising": "RuntimeError: half installed",
        "importing": "ModuleNotFoundError: No module named 'a_library_nobody_has'",
        "leaving": "SystemExit: 3",
        "unparsable": "SyntaxError: invalid syntax (unparsable.py, line 1)",
        "misspelling": "there is no hook 'tuner_stategies' (did you mean 'tuner_strategies'?)",
    }
    assert {one.origin for one in host.refused} == {f"{name} 1.2" for name in BROKEN}
    assert "mine" in host.tasks
    assert "freeze" in host.strategies
    lines = format_plugins(plugin_list(host)).splitlines()
    assert "  raising (raising 1.2): refused: RuntimeError: half installed" in lines
    assert "  freeze (device-tuner 0.1.0): tuner_freeze" in lines
