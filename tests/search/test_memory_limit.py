"""A tight limit on memory with the real backend: what does not fit is refused unrun, and nothing is killed."""

from pathlib import Path

import numpy as np
import pytest

from tuner.commands.tune.run import run
from tuner.task.data.samples import ArraySamples
from tuner.task.spec import InputSpec, ModelSpec
from tuner.task.task import Domain, Task

pytestmark = [pytest.mark.slow, pytest.mark.cold]
LIMIT_BYTES = 130_000_000
#: Of 32 maps of 32 × 32; the eager loop keeps about 1.2 MB a sample of it.
NET = """
from torch import nn

def build(outputs: int = 4) -> nn.Module:
    def block(inputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]

    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, outputs)
    return nn.Sequential(*block(3), *block(32), *block(32), *head)
"""
SPACE = """
strategies = ["freeze", "cache"]
sampler = "random"  # of plans that are weighed, none that would be refused is taken
[knobs]
runtime.backend = "torch"
freeze.trainable_blocks = { low = 4, high = 1000 }
cache.by = "none"
none.augment = 0.0
[knobs.recipe]
epochs = 1
batch_size = [64, 512]
optimiser = "sgd"
learning_rate = { low = 1e-4, high = 1e-2, log = true }
weight_decay = 0.0
schedule = "constant"
patience = 0
freeze_bn = true
micro_batches = 1
solve_again = false
"""


def task_of(folder: Path) -> Task:
    (folder / "net.py").write_text(NET, encoding="utf-8")
    spec = InputSpec(kind="arrays")
    generator = np.random.default_rng(0)

    def samples(count: int) -> ArraySamples:
        values = generator.standard_normal((count, 3, 32, 32), np.float32)
        return ArraySamples(values, np.arange(count) % 4, spec)

    return Task(
        name="maps",
        model=ModelSpec(f"{folder / 'net.py'}:build"),
        input=spec,
        loss="single-label",
        local=Domain(samples(512), samples(16)),
        global_=None,
        labels=("a", "b", "c", "d"),
        head_rows=(),
        local_labels=(0, 1, 2, 3),
    )


def test_plans_over_the_limit_are_refused_unrun_and_none_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "space.toml").write_text(SPACE, encoding="utf-8")
    made = run(
        task_of(tmp_path),
        space=str(tmp_path / "space.toml"),
        memory=f"{LIMIT_BYTES // 10**6}MB",
        trials=4,
        out=tmp_path / "run",
        store=tmp_path / "store",
    )
    ran = [record for record in made.records if record.state != "rejected"]
    refused = [record for record in made.records if record.state == "rejected"]
    assert [record.state for record in ran] == ["done"] * 4
    assert all(record.notes[0].startswith("run by the planned executor") for record in ran)
    assert all(record.values["peak_bytes"] <= LIMIT_BYTES for record in ran)
    assert refused
    assert all("--memory: needs" in record.reason and not record.values for record in refused)
    assert {record.plan.recipe.batch_size for record in refused if record.plan} == {512}
