"""Every first-party plugin obeys every rule of the kit."""

from importlib import import_module
from pathlib import Path

import pytest

from tuner_testing.models import libraries
from tuner_testing.rules import rules_of

FOLDER = Path(__file__).parents[2] / "plugins"
PLUGINS = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
#: The modules with the hooks, by plugin; the others are entry points of their own.
MODULES = {name: name for name in PLUGINS if "hookimpl" in (FOLDER / name / "__init__.py").read_text("utf-8")}
MODULES["tuner_fleet"] = "tuner_fleet.opener"
#: Numbers of rules of the plugins that offer no strategy.
FEW = {"tuner_energy": 5, "tuner_fleet": 5, "tuner_nntrainer": 5}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_no_rule_is_broken_or_left_unchecked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "MOST_SECONDS", 5.0)  # a busy machine takes its time
    rules = rules_of(import_module(MODULES[name]))
    verdicts = {f"{rule.subject}: {rule.text}": rule.verdict() for rule in rules}
    assert {rule: found for rule, found in verdicts.items() if found[0] not in {"held", "not applicable"}} == {}
    assert len(rules) >= FEW.get(name, 12)


def test_all_plugins_are_seen() -> None:
    assert len(PLUGINS) == 45
    assert len(MODULES) == 17
