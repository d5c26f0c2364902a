"""The contract of plugins: pytest makes a test of every rule."""

import os
import re
from pathlib import Path
from types import ModuleType

import pytest

import tuner_distill
from tests.plugins.testing.good import GOOD
from tests.warm import forked
from tuner.plugin import hookimpl
from tuner_testing.rules import rules_of

TEST = """
import tuner_seeded
from tuner_testing import PluginContract

class TestSeeded(PluginContract):
    plugin = tuner_seeded
"""


class Nothing:
    """A plugin without a hook."""


class Raises:
    """A plugin whose rule raises what no contract expects."""

    @hookimpl
    def tuner_lowerings(self, backend: str) -> None:
        raise OSError(backend)


def test_a_plugin_without_a_hook_breaks_a_rule() -> None:
    broken = {rule.text: rule.broken() for rule in rules_of(Nothing())}
    assert broken["the host loads it"] == ""
    assert "must have a hook, but there is no function tuner_" in (broken["it offers something"] or "")


def test_a_hook_that_raises_breaks_a_rule() -> None:
    broken = {rule.text: rule.broken() for rule in rules_of(Raises())}
    assert broken["it offers functions by kind"] == "OSError: torch"


def test_a_loss_term_that_no_strategy_adds_breaks_a_rule() -> None:
    misspelt = ModuleType("misspelt")
    vars(misspelt).update(
        tuner_strategies=tuner_distill.tuner_strategies,
        tuner_losses=hookimpl(lambda backend: {"distil": tuner_distill.divergence}),  # noqa: ARG005 - the hook's own
    )
    rules = {rule.text: rule for rule in rules_of(misspelt)}
    assert "loss term 'distil' must be added by a strategy" in (rules["its loss terms are in plans"].broken() or "")
    assert rules["every sample has one finite loss"].broken() is None  # one fault breaks one rule
    alone = next(rule for rule in rules_of(misspelt) if rule.text == "every sample has one finite loss")
    assert alone.broken() == "loss term 'distill' must be computed by tuner_losses, which has: distil"


@pytest.mark.slow
def test_the_whole_test_of_a_plugin_is_three_lines(tmp_path: Path) -> None:
    (tmp_path / "tuner_seeded.py").write_text(GOOD.replace("value.ndim == 1", "value.ndim / 0"))
    (tmp_path / "test_seeded.py").write_text(TEST)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    out = forked(["pytest", "-q", "-p", "no:cacheprovider"], tmp_path, {**kept, "PYTHONPATH": str(tmp_path)}).stdout
    assert "1 failed, 15 passed, 18 skipped" in out
    assert re.search(r"lowering 'bias' \(from block 1, full 1\): ZeroDivisionError.*tuner_seeded.py, l", out)
