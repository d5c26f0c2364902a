"""A grown trial from the command line: run, show, export, predict, and train again from its final widths."""

import time
from pathlib import Path

import pytest

from tests.pretrained import with_weights
from tuner.cli.app import call
from tuner.plan.toml import from_toml
from tuner.plan.trial import TrialPlan
from tuner.runtime import Bundle, Personaliser
from tuner.task.builtin import digits

SPACE = """
for = "tests of growth"
strategies = ["freeze", "growth"]
objectives = ["local_accuracy", "parameters", "flops", "train_seconds", "peak_bytes"]

[limits]
time = "30m"
trials = "1"

[knobs]
freeze.trainable_blocks = 4
growth.mode = "scratch"
growth.start = 0.2
growth.cap = 1.0
growth.flops = 1.0
growth.controller = "exponential"
growth.horizon = 3
growth.penalty = 0.4
growth.adapter = "dspa"

[knobs.recipe]
epochs = 5
batch_size = 32
optimiser = "adam"
learning_rate = 3e-3
weight_decay = 0.0
schedule = "constant"
patience = 0
freeze_bn = true
micro_batches = 1
"""


def total(plan: TrialPlan) -> int:
    return sum(block.parameters for block in plan.model.blocks)


def plan_of(folder: Path) -> TrialPlan:
    return from_toml((folder / "plan.toml").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_study_of_growth_ends_in_a_bundle_that_trains_again_from_its_widths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(tmp_path / "cache")))
    monkeypatch.setattr(
        "tuner.commands.tune.run.process_started", time.monotonic
    )  # --time counts from here, not from the suite's
    space = tmp_path / "growth.toml"
    space.write_text(SPACE, encoding="utf-8")
    run, folder = str(tmp_path / "run"), tmp_path / "bundle"
    assert call(["run", "digits", "--space", str(space), "--deterministic", "--out", run]) == 0
    assert call(["export", "--no-refit", run, str(folder)]) == 0
    bundle, plan = Bundle.open(folder), plan_of(folder)
    values = bundle.info.scores.trial
    assert 0 < values["parameters"] < total(plan)
    assert 0 < values["flops"] < sum(block.flops for block in plan.model.blocks)
    assert bundle.info.evolved.keys() == {edit.kind for edit in plan.shape}
    assert Personaliser(folder).predict(digits().local.val.load(0)).label in bundle.labels

    again = tmp_path / "again"
    assert call(["apply", str(folder), "digits", str(again)]) == 0
    assert plan_of(again).shape == ()
    assert total(plan_of(again)) == values["parameters"]

    regrown = tmp_path / "regrown"
    assert call(["apply", str(folder), "digits", str(regrown), "--from", "original"]) == 0
    assert plan_of(regrown).shape == plan.shape
    assert Bundle.open(regrown).info.evolved.keys() == bundle.info.evolved.keys()
