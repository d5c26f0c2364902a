"""`tuner plugins check`: each rule held or broken, from the command line."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.plugins.testing.good import GOOD
from tuner.cli.app import call
from tuner.errors import PluginError
from tuner_testing.check import CheckedRule, badge, check_plugin

OBJECTIVE = """
from tuner.plugin import Objective, hookimpl

@hookimpl
def tuner_objectives():
    return [Objective("train_joules", "minimise", "J")]
"""
OPTIMISER = """
from tuner.plugin import hookimpl

@hookimpl
def tuner_optimisers(backend):
    return {"halves": lambda parameters, recipe: 1 / 0}
"""


def said_by(picture: str) -> str:
    """Return the title of a badge, whose words are drawn too."""
    title, *drawn = [found.text or "" for found in ET.fromstring(picture).iter() if found.text]  # noqa: S314 - our own
    assert title == ": ".join(drawn)
    return title


def test_a_plugin_is_checked_by_the_name_of_its_entry_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "kit.svg"
    assert call(["plugins", "check", "freeze", "--badge", str(picture)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "freeze:"
    assert "  strategy freeze (__init__.py, line " in "\n".join(printed)
    held = [line for line in printed if line.startswith("    held ")]
    there = [line for line in printed if line.startswith("    not applicable ")]
    assert "      it measures nothing" in printed
    assert printed[-1] == f"{len(held)} of {len(held) + len(there)} rules held, {len(there)} do not apply"
    assert said_by(picture.read_text("utf-8")) == f"tuner kit: {len(held)} rules held"


@pytest.mark.usefixtures("clean")
def test_a_broken_rule_is_told_with_its_place_and_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuner_checked.py"
    path.write_text(GOOD.replace("def tuner_lowerings", "def tuner_lowering"))
    assert call(["plugins", "check", str(path), "--json"]) == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report.keys() == {"schema", "plugin", "rules", "held", "broken"}
    (broken,) = [rule for rule in report["rules"] if rule["verdict"] == "broken"]
    assert broken["rule"] == "the host loads it"
    assert "there is no hook 'tuner_lowering' (did you mean 'tuner_lowerings'?)" in broken["message"]
    assert broken["place"] == "tuner_checked.py"
    assert "checking the plugin" in err
    apart = replace(check_plugin(str(path)), broken=0, rules=(CheckedRule("a", "b", "not checked", "", ""),))
    assert said_by(badge(check_plugin(str(path)))) == f"tuner kit: 1 of {len(report['rules'])} broken"
    assert said_by(badge(apart)) == "tuner kit: 1 of 1 not checked"
    assert err.endswith(f"tuner: {path} breaks 1 of {len(report['rules'])} rules: correct what is listed above\n")
    assert call(["plugins", "check", str(path)]) == 1
    assert "    broken         the host loads it\n      plugin 'tuner_checked' must be" in capsys.readouterr().out


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("source", ["raise RuntimeError('no licence')", "def x(:", "import sys; sys.exit(3)"])
def test_a_plugin_that_cannot_be_imported_breaks_a_rule(source: str, tmp_path: Path) -> None:
    path = tmp_path / "tuner_checked.py"
    path.write_text(f"\n{source}\n")
    report = check_plugin(str(path))
    assert (report.held, report.broken) == (0, 1)
    assert report.rules[0].message.startswith("importing tuner_checked must not raise, but it raised ")
    assert "tuner_checked.py, line 2" in report.rules[0].message


@pytest.mark.usefixtures("clean")
def test_a_folder_of_a_package_is_checked(tmp_path: Path) -> None:
    folder = tmp_path / "tuner_checked_folder"
    folder.mkdir()
    (folder / "__init__.py").write_text(OBJECTIVE)
    report = check_plugin(str(folder))
    assert (report.held, report.broken) == (7, 0)
    assert [rule.verdict for rule in report.rules].count("not applicable") == 3
    assert {rule.subject for rule in report.rules} == {"plugin", "objective train_joules"}


@pytest.mark.usefixtures("clean")
def test_a_fault_is_reported_once_and_the_rules_behind_it_are_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "tuner_checked.py"
    path.write_text(OPTIMISER)
    report = check_plugin(str(path))
    found = [(rule.verdict, rule.message) for rule in report.rules if rule.subject == "optimiser halves"]
    assert [verdict for verdict, _ in found] == ["broken", "not checked", "not checked", "not checked"]
    assert [message for _, message in found if message] == ["ZeroDivisionError: division by zero"]
    assert report.broken == 1


@pytest.mark.usefixtures("clean")
def test_nothing_is_held_of_a_plugin_that_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tuner_checked.py"
    path.write_text(f"{GOOD}\n@hookimpl\ndef tuner_commands():\n    return []\n")
    report = check_plugin(str(path))
    assert (report.held, report.broken) == (0, 1)
    assert {rule.verdict for rule in report.rules} == {"broken", "not checked"}


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("freezer", "no module and no installed plugin 'freezer' .did you mean 'freeze'.*: give one of them, or"),
        ("nowhere.py", "there is no file nowhere.py: check the path"),
    ],
)
def test_a_plugin_that_is_not_there_is_an_error(package: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        check_plugin(package)


def test_without_pytest_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("tuner_testing")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pytest", None)
    assert call(["plugins", "check", "freeze"]) == 1
    assert 'this needs pytest, which is not installed: pip install "device-tuner[kit]"' in capsys.readouterr().err


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the checked module after the test."""
    monkeypatch.setitem(sys.modules, "tuner_checked", sys)
