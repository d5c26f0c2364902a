"""Plans that share a normal form train the same weights, bit for bit: what the normal form leaves out is idle."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner import tail_terms
from tuner.planner.tail_terms import PLANNED_BYTES
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import task_info

pytestmark = pytest.mark.slow
BACKEND = TorchBackend()
HEADS = HeadsPlan("exits-only", (Exit(1, 8),), supervised=1.0)
LABELS_ALONE = replace(HEADS, distilled=0.0)


@pytest.fixture(scope="module")
def plan(task: Task) -> tuple[Task, TrialPlan]:
    model = opened(BACKEND, task).model
    recipe = RecipePlan(epochs=3, learning_rate=1e-2)
    return task, TrialPlan(model, task_info(task), split=2, cache=CachePlan("cache", 8), recipe=recipe)


def trained(task: Task, plan: TrialPlan, folder: Path) -> dict[str, Any]:
    opened(BACKEND, task).train(Trial(plan, 1, Store(folder / "store"), folder / "weights.safetensors"))
    return dict(load_file(folder / "weights.safetensors"))


def changed(plan: TrialPlan, changes: dict[str, Any]) -> TrialPlan:
    recipe = replace(plan.recipe, **changes.get("recipe", {}))
    return replace(plan, **{**changes, "recipe": recipe})


def train_alike(task: Task, first: TrialPlan, second: TrialPlan, folder: Path) -> bool:
    """Return whether two plans of one normal form, not brought to it, end with the same weights."""
    assert first.key() != second.key()
    assert normal_form(first).key() == normal_form(second).key()
    weights, others = trained(task, first, folder / "first"), trained(task, second, folder / "second")
    return weights.keys() == others.keys() and all(bool((weights[name] == others[name]).all()) for name in weights)


@pytest.mark.parametrize(
    ("common", "idle"),
    [
        ({}, {"recipe": {"patience": 2}}),
        ({"recipe": {"micro_batches": 16}}, {"recipe": {"micro_batches": 20}}),
    ],
)
@pytest.mark.parametrize("planned_bytes", [PLANNED_BYTES, 0], ids=["eager", "planned"])
def test_an_idle_knob_of_a_tail_changes_no_weight(
    common: dict[str, Any],
    idle: dict[str, Any],
    planned_bytes: int,
    plan: tuple[Task, TrialPlan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail_terms, "PLANNED_BYTES", planned_bytes)
    task, start = plan
    first = changed(start, common)
    assert train_alike(task, first, changed(first, idle), tmp_path)


@pytest.mark.parametrize(
    ("heads", "idle"),
    [
        (HEADS, {"recipe": {"freeze_bn": False}}),
        (HEADS, {"recipe": {"micro_batches": 4}}),
        (LABELS_ALONE, {"heads": replace(LABELS_ALONE, temperature=2.0)}),
    ],
)
def test_an_idle_knob_of_exits_alone_changes_no_weight(
    heads: HeadsPlan, idle: dict[str, Any], plan: tuple[Task, TrialPlan], tmp_path: Path
) -> None:
    task, start = plan
    first = replace(start, split=start.model.num_blocks, heads=heads)
    assert train_alike(task, first, changed(first, idle), tmp_path)


def test_a_knob_with_effect_changes_weights(plan: tuple[Task, TrialPlan], tmp_path: Path) -> None:
    task, first = plan
    weights = trained(task, first, tmp_path / "first")
    others = trained(task, changed(first, {"recipe": {"weight_decay": 0.1}}), tmp_path / "second")
    assert any(bool((weights[name] != others[name]).any()) for name in weights)
