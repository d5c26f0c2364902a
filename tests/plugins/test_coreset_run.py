"""A study on the digits that draws between a random fraction and herding, to a bundle that trains again."""

from pathlib import Path

import pytest

from tests.pretrained import with_weights
from tuner.bundle.replay import Replay
from tuner.commands.bundles.export import export
from tuner.commands.tune.run import run
from tuner.runtime.train.files import REPLAY
from tuner.task.builtin import digits

pytestmark = pytest.mark.slow

SPACE = """
strategies = ["gdm", "coreset", "freeze", "cache"]
rungs = false
[knobs]
data.by = "coreset"
coreset.alpha = { low = 0.05, high = 0.1 }
freeze.trainable_blocks = [1, 2]
cache.by = "cache"
cache.bits = [8, 4]
runtime.backend = "torch"
[knobs.recipe]
epochs = 3
"""


def test_herding_takes_part_in_a_study_and_its_samples_are_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(tmp_path / "cache")))
    space = tmp_path / "space.toml"
    space.write_text(SPACE, encoding="utf-8")
    task = digits()
    found = run(task, space=str(space), trials=3, out=tmp_path / "run", store=tmp_path / "store", seed=1)
    assert [record.state for record in found.records] == ["done"] * 3
    plans = [record.plan for record in found.records if record.plan is not None]
    assert all(plan.data.edit is not None and plan.data.edit.kind == "herding" for plan in plans)
    best = found.record(found.front[0]).plan
    assert best is not None
    bundle = tmp_path / "bundle"
    export(found, bundle, str(found.front[0]), trainable=True, refit=False)
    assert len(Replay.load(bundle / REPLAY)) >= best.global_samples  # more, where a round forgets
