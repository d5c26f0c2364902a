"""The contract of plugins: pytest makes a test of every rule."""

import pytest

import tuner_freeze
from tests.testing.faults import GOOD
from tuner.testing import PluginContract
from tuner.testing.rules import rules_of

pytest_plugins = ("pytester",)


class TestFreeze(PluginContract):
    plugin = tuner_freeze


class Nothing:
    """A plugin without a hook."""


class Raises:
    """A plugin whose rule raises what no contract expects."""

    def tuner_lowerings(self, backend: str) -> None:
        raise OSError(backend)


def test_a_plugin_without_a_hook_breaks_a_rule() -> None:
    broken = {rule.text: rule.broken() for rule in rules_of(Nothing())}
    assert broken["the host loads it"] == ""
    assert "must have a hook, but there is no function tuner_" in (broken["it offers something"] or "")


def test_a_hook_that_raises_breaks_a_rule() -> None:
    broken = {rule.text: rule.broken() for rule in rules_of(Raises())}
    assert broken["its lowerings are functions by kind"] == "OSError: torch"


@pytest.mark.slow
def test_the_whole_test_of_a_plugin_is_three_lines(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(tuner_seeded=GOOD.replace("value.ndim == 1", "value.ndim / 0"))
    pytester.makepyfile(
        test_seeded="""
        import tuner_seeded
        from tuner.testing import PluginContract

        class TestSeeded(PluginContract):
            plugin = tuner_seeded
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "ignore")
    result.assert_outcomes(passed=12, failed=1, skipped=11)
    result.stdout.fnmatch_lines(["lowering 'bias' (from block 1, full 2): ZeroDivisionError*tuner_seeded.py, l*"])
