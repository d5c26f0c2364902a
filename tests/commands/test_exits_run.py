"""Studies with exits on, from the command's own entry to a bundle that answers."""

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.bundle.format import Bundle
from tuner.commands.bundles.export import export
from tuner.commands.tune.run import run
from tuner.results.run import Run
from tuner.task import Task
from tuner.task.builtin import digits

pytestmark = pytest.mark.slow

SPACE = """
strategies = ["gdm", "freeze", "exits", "cache"]
objectives = ["local_accuracy", "train_seconds", "mean_flops", "mean_latency_seconds"]
[knobs]
freeze.trainable_blocks = [1, 2]
gdm.weight = 1.0
gdm.balance = false
cache.by = "cache"
cache.bits = [8, 4]
runtime.backend = "torch"
[knobs.exits]
mode = ["MODE"]
loss = ["LOSS"]
[knobs.recipe]
epochs = 6
learning_rate = 1e-2
optimiser = "adamw"
freeze_bn = true
patience = 0
"""


def searched(task: Task, mode: str, loss: str, folder: Path) -> Run:
    space = folder / "exits.toml"
    space.write_text(SPACE.replace("MODE", mode).replace("LOSS", loss), encoding="utf-8")
    return run(task, space=str(space), trials=2, out=folder / "run", store=folder / "store", seed=1)


@pytest.fixture
def task(own_cache: Path) -> Task:
    return digits()


def test_the_front_holds_trials_with_exits(task: Task, tmp_path: Path) -> None:
    found = searched(task, "with-tail", "supervised+distilled", tmp_path)
    plans = [found.record(trial).plan for trial in found.front]
    assert any(plan is not None and plan.heads.exits for plan in plans)
    for record in found.records:
        assert record.state == "done"
        assert record.values["mean_flops"] > 0
        assert record.values["mean_latency_seconds"] > 0
    said: list[str] = []
    export(found, tmp_path / "bundle", drop_unreached=True, refit=False, warn=said.append)
    kept, exits = len(list((tmp_path / "bundle/segments").iterdir())), Bundle.read(tmp_path / "bundle").info.exits
    assert exits is not None
    assert len(exits.segments) == kept
    assert [line for line in said if "dropped nothing" in line] != []  # no exit takes all samples here


def test_without_labels_only_exits_learn_and_agreement_is_the_objective(task: Task, tmp_path: Path) -> None:
    assert task.global_ is not None
    unlabelled = replace(task, local=replace(task.global_, test=None), labelled=False)
    found = searched(unlabelled, "exits-only", "supervised", tmp_path)
    assert found.info.untouched.values["local_accuracy"] == 1.0
    best = found.record(found.front[0])
    assert best.plan is not None
    assert (best.plan.split, best.plan.heads.mode) == (4, "exits-only")
    assert best.plan.heads.supervised == 0.0
    assert best.values["local_accuracy"] > 0.9
