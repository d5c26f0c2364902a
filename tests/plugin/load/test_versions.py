"""Which plugins took part, and whether the same are installed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.plugin.installed import STRATEGY, install
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host, differences, taking_part, trained_by


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path / "site", "shift", STRATEGY.replace("NAME", "shift"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def test_strategies_edits_and_backends_name_their_plugins(site: Path) -> None:
    host = build_host()
    assert taking_part(host, ["freeze", "shift", "recipe"], ["torch"]) == {
        "freeze": "device-tuner 0.1.0",
        "shift": "shift 1.2",
    }
    plain = TrialPlan(model=example_model(2), task=example_task())
    assert trained_by(host, plain, ["freeze.trainable_blocks", "recipe.epochs"]) == {"freeze": "device-tuner 0.1.0"}
    assert trained_by(host, replace(plain, shape=(TailEdit("shift"),)), []) == {"shift": "shift 1.2"}


def test_other_versions_and_missing_plugins_are_said(site: Path) -> None:
    host = build_host()
    assert differences(host, {}) == differences(host, {"shift": "shift 1.2", "freeze": "device-tuner 0.1.0"}) == ""
    assert differences(host, {"shift": "shift 1.1", "twist": "tuner-twist 3.0"}) == (
        "plugin shift was shift 1.1, and is shift 1.2 now; plugin twist was tuner-twist 3.0, and is not installed now"
    )


def test_a_plugin_that_was_refused_is_not_installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_PLUGINS", "-shift")
    assert "shift was shift 1.2, and is not installed" in differences(build_host(), {"shift": "shift 1.2"})
