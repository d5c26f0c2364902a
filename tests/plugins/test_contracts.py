"""Every first-party plugin obeys every rule of the kit."""

from importlib import import_module
from pathlib import Path

import pytest

from tuner_testing.models import libraries
from tuner_testing.rules import rules_of

PLUGINS = sorted(path.parent.name for path in (Path(__file__).parents[2] / "plugins").glob("*/__init__.py"))
#: First-party plugins that are entry points of their own, without hooks.
NO_HOOKS = {
    "tuner_apply",
    "tuner_audio",
    "tuner_check",
    "tuner_conformance",
    "tuner_dashboard",
    "tuner_demo",
    "tuner_describe",
    "tuner_forest",
    "tuner_hubs",
    "tuner_init",
    "tuner_instant",
    "tuner_labels",
    "tuner_mcp",
    "tuner_onnx_models",
    "tuner_onnx_steps",
    "tuner_planned",
    "tuner_priors",
    "tuner_report",
    "tuner_serve",
    "tuner_store",
    "tuner_testing",
    "tuner_watch",
}
#: The modules with the hooks, by plugin.
MODULES = {name: name for name in PLUGINS if name not in NO_HOOKS}
MODULES["tuner_fleet"] = "tuner_fleet.opener"
#: Numbers of rules of the plugins that offer no strategy.
FEW = {"tuner_energy": 5, "tuner_fleet": 5, "tuner_nntrainer": 5}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_no_rule_is_broken_or_left_unchecked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "MOST_SECONDS", 5.0)  # a busy machine takes its time
    rules = rules_of(import_module(MODULES[name]))
    assert {f"{rule.subject}: {rule.text}": broken for rule in rules if (broken := rule.broken()) != ""} == {}
    assert len(rules) >= FEW.get(name, 12)


def test_all_plugins_are_seen() -> None:
    assert len(PLUGINS) == 39
