"""Weights that are not those of their trial are not exported."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.bundle.format import Bundle
from tuner.bundle.scores import Scores
from tuner.commands.bundles.export import _require_own_score, export
from tuner.distribution import SWITCH
from tuner.errors import BundleError, PluginError
from tuner.results.run import Run

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"


def test_a_step_that_no_plugin_writes_is_refused_before_a_refit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "-onnx-steps")
    shutil.copytree(DIGITS / "run", tmp_path / "run")
    with pytest.raises(PluginError, match=r"--trainable writes a training step of trial 3, .* is off"):
        export(Run.open(tmp_path / "run"), tmp_path / "out", pick="3", trainable=True)
    assert not [*tmp_path.glob("*out*")]


def test_weights_that_answer_clearly_worse_than_in_their_trial_are_refused() -> None:
    record, info = Run.open(DIGITS / "run").records[0], Bundle.read(DIGITS / "bundle").info
    record = replace(record, values={**record.values, "local_accuracy": 0.925})

    def scored(accuracy: float) -> None:
        scores = Scores(untouched=info.scores.untouched, from_pixels={"local_accuracy": accuracy})
        _require_own_score(record, replace(info, scores=scores, int8=None), 100)

    for accuracy in (1.0, 0.925, 0.85):
        scored(accuracy)
    with pytest.raises(BundleError, match=r"have 0.0 % \(0–4\) on the samples that judged it, and had 92.5 %"):
        scored(0.0)
    assert record.plan is not None
    record = replace(record, plan=replace(record.plan, data=replace(record.plan.data, share=0.5)))
    scored(0.0)  # other samples judged it
