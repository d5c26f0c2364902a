"""Every first-party plugin obeys every rule of the kit."""

from importlib import import_module
from pathlib import Path

import pytest

from tuner.testing.rules import rules_of

PLUGINS = sorted(path.parent.name for path in (Path(__file__).parents[2] / "plugins").glob("*/__init__.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PLUGINS)
def test_no_rule_is_broken_or_left_unchecked(name: str) -> None:
    rules = rules_of(import_module(name))
    assert {f"{rule.subject}: {rule.text}": broken for rule in rules if (broken := rule.broken()) != ""} == {}
    assert len(rules) >= (5 if name == "tuner_energy" else 12)  # which offers an objective where it can be measured


def test_all_plugins_are_seen() -> None:
    assert len(PLUGINS) == 12
