"""What exits begin with: learned once from the global data, kept, and worth it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.runtime.bundles import known_digits, leaving_at, trainable_exits
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.heads_terms import start_bytes
from tuner.runtime import ExitsTrainer
from tuner.store.kept import read_start
from tuner.store.store import Store
from tuner.task import Subset, Task, digits
from tuner.task.info import task_info
from tuner_apply.adapt import adapted

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]
BACKEND = TorchBackend()
SOLVED = HeadsPlan(
    "exits-only", (Exit(1, 0), Exit(2, 0)), supervised=1.0, distilled=0.0, ridge=10.0, against="best", tolerance=1.0
)  # at this tolerance, all leave at exit 0


@pytest.fixture(scope="module")
def task() -> Task:
    """A user with few photos of the digits that the model knows."""
    known = known_digits()
    return replace(known, local=replace(known.local, train=Subset(known.local.train, range(0, 760, 20))))


def plan_of(task: Task, model: ModelInfo, heads: HeadsPlan = SOLVED, **changes: Any) -> TrialPlan:
    plan = TrialPlan(
        model,
        task_info(task),
        split=3,
        heads=replace(heads, **changes),
        cache=CachePlan("cache", 8),
        recipe=RecipePlan(epochs=1, learning_rate=1e-3),
    )
    return normal_form(plan)


def carried_out(task: Task, plan: TrialPlan, store: Store) -> Mapping[str, float]:
    opened(BACKEND, task).fill([plan], store)
    return opened(BACKEND, task).train(Trial(plan, 1, store, store.folder.parent / "weights.safetensors")).values


def kept(store: Store) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (store.folder / "starts").glob("*")}


def test_solved_exits_begin_with_all_global_samples_which_are_summed_once(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    without = carried_out(task, plan_of(task, model), store)
    begun = plan_of(task, model, global_weight=1.0)
    opened(BACKEND, task).fill([plan_of(task, model), begun], store)
    assert not kept(store)  # what only shares the pass may never be tried
    values = carried_out(task, begun, store)
    assert values["exit0_local_accuracy"] > without["exit0_local_accuracy"] + 0.05
    first = kept(store)
    assert len(first) == 2
    body = sum((store.folder / "starts" / name).stat().st_size for name in first)
    assert 0 < body - start_bytes(begun) < 1000  # names, shapes and digests
    carried_out(task, plan_of(task, model, global_weight=0.1, ridge=30.0, distilled=0.5), store)
    assert kept(store) == first
    carried_out(task, plan_of(task, model, global_weight=0.1, exits=(Exit(2, 0), Exit(3, 0))), store)
    assert len(kept(store)) == 3
    assert first.items() <= kept(store).items()


def test_steps_begin_with_weights_that_do_not_depend_on_the_other_exits(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    heads = replace(SOLVED, ridge=0.0, exits=(Exit(1, 4), Exit(2, 4)), global_weight=0.5)
    store, alone = Store(tmp_path / "store"), Store(tmp_path / "alone")
    values = carried_out(task, plan_of(task, model, heads), store)
    without = carried_out(task, plan_of(task, model, heads, global_weight=0.0), store)
    assert values["exit0_local_accuracy"] > without["exit0_local_accuracy"] + 0.2
    carried_out(task, plan_of(task, model, heads, exits=(Exit(2, 4),)), alone)
    (name,) = kept(alone)
    assert name in kept(store)
    one, other = (read_start(where.folder, name.removesuffix(".bin")) for where in (store, alone))
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one["0.weight"], other["0.weight"], atol=1e-6)


def test_a_damaged_start_is_learned_again_and_one_without_room_is_not_kept(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    plan, store = plan_of(task, model, global_weight=1.0), Store(tmp_path / "store")
    values = carried_out(task, plan, store)
    for name in kept(store):
        path = store.folder / "starts" / name
        path.write_bytes(path.read_bytes()[:-1])
    again = carried_out(task, plan, store)
    assert again["local_accuracy"] == values["local_accuracy"]
    assert all(read_start(store.folder, name.removesuffix(".bin")) for name in kept(store))
    records = sum(file.bytes for file in store.list())
    starts = sum((store.folder / "starts" / name).stat().st_size for name in kept(store))
    assert len(kept(Store(store.folder, store.nbytes - records))) == 2  # records go first
    full = Store(store.folder, store.nbytes - starts)
    assert not kept(full)
    assert carried_out(task, plan, full)["local_accuracy"] == values["local_accuracy"]
    assert not kept(full)


def test_apply_and_rounds_keep_what_exits_began_with(tmp_path: Path) -> None:
    made = known_digits()
    few = replace(made, local=replace(made.local, train=Subset(made.local.train, range(0, 760, 20))))
    folder = trainable_exits(few, tmp_path, replace(SOLVED, global_weight=1.0))
    bundle = Bundle.open(folder)
    assert bundle.plan().heads.global_weight == 1.0
    store = Store(tmp_path / "store")
    first = kept(store)
    assert len(first) == 2
    given = adapted(few, folder, starts_from_bundle=True)
    session = opened(BACKEND, given)
    plan = bundle.plan().carried_to(session.model, task_info(given))
    session.fill([plan], store)
    assert kept(store) == first

    known = digits().global_
    assert known is not None
    new, labels = [known.train.load(row) for row in range(700, 720)], list(map(str, known.train.labels[700:720]))
    right = []
    for weight in (1.0, 0.0):
        trainer = ExitsTrainer(folder, threads=1)
        trainer.plan = replace(trainer.plan, heads=replace(trainer.plan.heads, global_weight=weight))
        trainer.add(new, labels)
        trainer.train()
        right.append(leaving_at(trainer, len(trainer.thresholds) - 1).global_accuracy() or 0.0)
    assert right[0] > right[1]
    path = folder / "train" / "sums.safetensors"
    tensors = load_file(path)
    save_file({name: value[1:] if value.ndim else value for name, value in tensors.items()}, path)
    with pytest.raises(BundleError, match="sums"):
        ExitsTrainer(folder, threads=1)
