"""In a notebook, a run shows its front as pictures."""

import re
import sys
from pathlib import Path

import pytest

import tuner

RUN = Path(__file__).parents[2] / "fixtures" / "digits" / "run"


@pytest.mark.slow
def test_a_notebook_shows_the_front_as_pictures_where_matplotlib_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    run = tuner.Run.open(RUN)
    shown = run._repr_html_()
    assert shown.count("<svg ") == shown.count("</svg>") == 2
    assert not re.search(r"(?:href|src)=[\"'](?!#)|@import|<script", shown)  # nothing is loaded from elsewhere
    assert set(re.findall(r"var\(--(?!jp-)(\w+)", shown)) <= set(re.findall(r"--(?!jp-)(\w+):", shown))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert shown.startswith(run._repr_html_())
    assert "<svg" not in run._repr_html_()


def test_without_the_plugin_the_front_is_a_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_PLUGINS", "-report")
    shown = tuner.Run.open(RUN)._repr_html_()
    assert "<table>" in shown
    assert "<svg" not in shown
