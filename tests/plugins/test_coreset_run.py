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
    found = run(task, space=str(space), trials=1, deterministic=True, out=tmp_path / "run", store=tmp_path / "store")
    assert [record.state for record in found.records] == ["done"]
    plan = found.record(0).plan
    assert plan is not None
    assert plan.data.edit is not None
    assert plan.data.edit.kind == "herding"
    bundle = tmp_path / "bundle"
    export(found, bundle, "0", trainable=True, refit=False)
    assert len(Replay.load(bundle / REPLAY)) >= plan.global_samples  # more, where a round forgets
