"""Loading: in which order, from where, what is switched off, measured, and refused."""

import json
import logging
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.plugin.installed import STRATEGY, install
from tuner.cli.app import call
from tuner.cli.plugins import format_plugins
from tuner.commands.plugins import plugin_list
from tuner.errors import PluginError
from tuner.files import import_file
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.plugin import API, Backend, hookimpl, hookspecs
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.results.records.trial import TrialRecord

NAMED = STRATEGY.replace("NAME", "named")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, as of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def local(path: Path, source: str = NAMED) -> Path:
    path.write_text(source)
    return path


def refusals(host: Host) -> dict[str, str]:
    return {plugin.name: plugin.refused for plugin in host.refused}


def test_our_own_plugins_load_before_those_of_others(site: Path) -> None:
    install(site, "aaa", STRATEGY.replace("NAME", "freeze"))
    install(site, "freeze", NAMED)
    host = build_host()
    assert refusals(host) == {
        "aaa": "strategy 'freeze' of plugin 'aaa' has a name that is taken by plugin 'freeze': rename it",
        "freeze": "a plugin called 'freeze' is loaded already, from device-tuner 0.1.0: rename one of them",
    }
    assert type(host.strategies["freeze"]).__module__ == "tuner_freeze"


def test_what_a_plugin_prints_is_no_part_of_the_output(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "chatty", f"print('hello from the import'){NAMED}")
    assert call(["plugins", "--json"]) == 0
    printed = capsys.readouterr()
    assert "chatty" in {plugin["name"] for plugin in json.loads(printed.out)["plugins"]}
    assert "hello from the import" in printed.err


def test_a_slow_import_is_measured_and_said(site: Path) -> None:
    install(site, "slow", f"import time; time.sleep(0.6){NAMED}")
    host = build_host()
    seconds = {plugin.name: plugin.seconds for plugin in host.plugins}
    assert 0.6 <= seconds["slow"] < 5
    assert seconds["freeze"] < 0.5
    (line,) = [line for line in format_plugins(plugin_list(host)).splitlines() if "its import takes" in line]
    assert line.startswith("  slow (slow 1.2): slow (its import takes ")


@pytest.mark.parametrize(
    "hook", sorted(name for name in vars(hookspecs) if name.startswith("tuner_") and name != "tuner_trial_done")
)
def test_a_forgotten_return_is_refused(hook: str) -> None:
    forgetful = SimpleNamespace(**{hook: hookimpl(lambda: None)})
    reason = refusals(build_host({"forgetful": forgetful}, installed=False))["forgetful"]
    assert reason.startswith(f"{hook} must return ")
    assert reason.endswith("but it returned None: is its `return` missing?")


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (["noise"], "tuner_lowerings returns lowerings by name, but it returned a list"),
        ({"noise": "lower"}, "tuner_lowerings returns lowerings by name, but 'noise' is 'lower'"),
        ({3: print}, "tuner_lowerings returns lowerings by name, but 3 is <built-in function print>"),
    ],
)
def test_lowerings_of_the_wrong_kind_are_refused(returned: object, reason: str) -> None:
    plugin = SimpleNamespace(tuner_lowerings=hookimpl(lambda: returned))
    host = build_host({"bad": plugin}, installed=False)
    assert refusals(host) == {"bad": reason}
    assert host.extensions("torch").lowerings == {}


def test_lowerings_are_asked_for_once_for_each_backend(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    class Plugin:
        @hookimpl
        def tuner_lowerings(self, backend: str) -> Mapping[str, Any]:
            asked.append(backend)
            raise ImportError("no such library")

    host = build_host({"p": Plugin()}, installed=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            host.extensions("torch")
    assert sorted(asked) == ["onnxruntime", "torch"]
    (problem,) = host.problems
    assert problem.startswith("plugin p: tuner_lowerings raised ImportError: no such library (test_loading.py, line ")


def test_wrong_lowerings_for_a_backend_that_came_later_are_a_problem_not_a_crash() -> None:
    class Careless:
        @hookimpl
        def tuner_lowerings(self, backend: str) -> Any:
            return {} if backend in {"torch", "onnxruntime"} else None

    class Late(Backend):
        name = "late"

        def supports(self, plan: TrialPlan) -> str | None: ...

        def open(self, task: Any, extensions: Any) -> Any: ...

    late = SimpleNamespace(tuner_backends=hookimpl(lambda: [Late()]))
    host = build_host({"careless": Careless(), "late": late}, installed=False)
    assert host.refused == []
    assert host.extensions("late").lowerings == {}
    host.extensions("late")
    assert len(host.problems) == 1
    assert host.problems[0].startswith("plugin careless: tuner_lowerings must return")
    assert f"problem: {host.problems[0]}" in format_plugins(plugin_list(host)).splitlines()


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (API, ""),
        (API + 1, f"it needs TUNER_API {API + 1}, but this tuner has {API}: update tuner, or install an earlier"),
        ("1", f"TUNER_API must be a whole number from 1 to {API}, got '1'"),
        (True, f"TUNER_API must be a whole number from 1 to {API}, got True"),
        (0, f"TUNER_API must be a whole number from 1 to {API}, got 0"),
    ],
)
def test_a_plugin_says_which_interface_it_was_written_for(wanted: object, reason: str) -> None:
    host = build_host({"p": SimpleNamespace(TUNER_API=wanted)}, installed=False)
    assert refusals(host).get("p", "").startswith(reason)
    assert bool(host.refused) == bool(reason)


def test_installed_plugins_are_switched_off(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "broken", "raise RuntimeError('no licence')")
    monkeypatch.setenv("TUNER_PLUGINS", "-broken, -growth")
    host = build_host()
    assert host.refused == []
    assert {plugin.name for plugin in host.plugins if plugin.off} == {"broken", "growth"}
    assert "growth" not in host.strategies
    lines = format_plugins(plugin_list(host)).splitlines()
    assert "  growth (device-tuner 0.1.0): switched off by TUNER_PLUGINS" in lines


@pytest.mark.parametrize(
    ("switch", "reason"),
    [
        ("-freezer", r"TUNER_PLUGINS names 'freezer', which is not installed \(did you mean 'freeze'\?\); installed: "),
        ("freeze", "TUNER_PLUGINS must be names with a minus, which switches them off, got 'freeze': -freeze"),
        ("-core", "TUNER_PLUGINS names 'core', which is not installed"),
    ],
)
def test_a_switch_that_means_nothing_is_named(switch: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_PLUGINS", switch)
    with pytest.raises(PluginError, match=reason):
        build_host()


def test_a_file_is_a_plugin(tmp_path: Path) -> None:
    path = local(tmp_path / "mine.py")
    host = build_host(local=[path, str(path)], installed=False)
    host.check_local()
    assert host.strategies["named"].name == "named"
    assert host.local == [str(path)]
    (plugin,) = [plugin for plugin in host.plugins if plugin.local]
    assert (plugin.name, plugin.module) == ("mine", str(path))
    digest = plugin.origin.removeprefix("mine.py ")
    local(path, f"{NAMED}\n# changed")
    assert digest not in build_host(local=[path], installed=False).plugins[-1].origin


def test_a_module_is_a_plugin_and_stays_the_one_that_was_given(tmp_path: Path) -> None:
    module = import_file(local(tmp_path / "mine.py", f"{NAMED}\nseen = []"), "test")
    host = build_host(local=[module], installed=False)
    assert type(host.strategies["named"]) is module.Made
    assert host.local == [str(tmp_path / "mine.py")]
    with pytest.raises(PluginError, match=r"a plugin must be a module with a file, but .* has none: write it into"):
        build_host(local=[ModuleType("typed_in")])


def test_a_file_runs_once_in_a_process_until_it_changes(tmp_path: Path) -> None:
    note = tmp_path / "runs"
    counting = f"{NAMED}\nwith open({str(note)!r}, 'a') as file:\n    file.write('x')\n"
    path = local(tmp_path / "mine.py", counting)
    for source, runs in ((counting, "x"), (counting, "x"), (f"{counting}# changed", "xx")):
        local(path, source)
        assert "named" in build_host(local=[path], installed=False).strategies
        assert note.read_text() == runs


def test_a_package_with_the_name_of_another_module_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "json"
    package.mkdir()
    (package / "__init__.py").write_text(NAMED)
    host = build_host(local=[package], installed=False)
    with pytest.raises(
        PluginError, match=r"json: a package must not have the name of another module, .*: rename the f"
    ):
        host.check_local()
    build_host(local=[local(tmp_path / "json.py")]).check_local()  # a file is imported under a name of its own
    assert sys.modules["json"] is json


def test_a_package_is_a_plugin_and_imports_its_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    package = tmp_path / "adapters_of_mine"
    package.mkdir()
    (package / "torch.py").write_text("def lower(tail, settings):\n    return 'lowered'\n")
    late = "def lower(tail, settings):\n    from adapters_of_mine.torch import lower\n    return lower(tail, settings)"
    (package / "__init__.py").write_text(NAMED.replace("def lower(tail, settings):\n    return tail.module", late))
    host, again = (build_host(local=[package], installed=False) for _ in range(2))
    host.check_local()
    assert host.local == [str(package / "__init__.py")]
    tail: Any = None
    assert host.extensions("torch").lowerings["named"](tail, {}) == "lowered"
    assert type(host.strategies["named"]) is type(again.strategies["named"])
    origin = host.plugins[-1].origin
    assert origin.startswith("adapters_of_mine ")
    (package / "torch.py").write_text("def lower(tail, settings):\n    return 'otherwise'\n")
    assert build_host(local=[package], installed=False).plugins[-1].origin != origin


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, r"plugin 'mine' cannot be used: there is no file .*mine\.py: check the path, or put the file back"),
        ("raise RuntimeError('no licence')", "plugin 'mine' cannot be used: RuntimeError: no licence"),
        (STRATEGY.replace("NAME", "freeze"), "'freeze' of plugin 'mine' has a name that is taken by plugin 'freeze'"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_where_it_is_needed(
    source: str | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    if source is not None:
        local(path, source)
    host = build_host(local=[path])
    with pytest.raises(PluginError, match=reason):
        host.check_local()


def test_a_file_is_used_instead_of_the_installed_plugin_of_its_name(site: Path, tmp_path: Path) -> None:
    install(site, "mine", STRATEGY.replace("NAME", "released"))
    host = build_host(local=[local(tmp_path / "mine.py")])
    host.check_local()
    assert "named" in host.strategies
    assert "released" not in host.strategies
    assert "a plugin called 'mine' is loaded already, from mine.py " in refusals(host)["mine"]


def test_an_observer_changes_a_copy(tmp_path: Path) -> None:
    seen: list[TrialRecord] = []

    class Cheat:
        @hookimpl
        def tuner_trial_done(self, record: TrialRecord) -> None:
            record.values["local_accuracy"] = 1.0
            record.knobs.clear()
            seen.append(record)

    plan = TrialPlan(model=example_model(2), task=example_task())
    record = TrialRecord(0, "done", plan, {"a.b": 1}, {"local_accuracy": 0.5})
    build_host({"one": Cheat(), "two": Cheat()}, installed=False).trial_done(str(tmp_path), record)
    assert record == TrialRecord(0, "done", plan, {"a.b": 1}, {"local_accuracy": 0.5})
    assert len(seen) == 2


def test_an_observer_that_takes_long_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sleepy:
        @hookimpl
        def tuner_trial_done(self) -> None:
            time.sleep(0.02)

    monkeypatch.setattr("tuner.plugin.host.SLOW_SECONDS", 0.01)
    host = build_host({"sleepy": Sleepy()}, installed=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            host.trial_done("run", TrialRecord(0, "done", None))
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == "plugin sleepy: tuner_trial_done took 0.0 s; the study waits for it"


def test_the_module_of_a_local_plugin_is_imported_by_its_name(tmp_path: Path) -> None:
    """A task's `model.factory` then names no path; a name that means another module stays that one's."""
    path, taken = local(tmp_path / "tuner_named_here.py"), local(tmp_path / "fractions.py")
    try:
        build_host(local=[path, taken])
        assert import_module("tuner_named_here").__file__ == str(path)
        assert import_module("fractions").Fraction
    finally:
        sys.modules.pop("tuner_named_here", None)
