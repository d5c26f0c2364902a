"""Plans that train the same weights: continued after a pause, or apart in what their normal form leaves out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.backends.torch.plans import plan_of
from tests.sessions import opened
from tuner.backends.base import CHECKPOINT, Backend, Session, Trial
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import OpenModel
from tuner.errors import DivergedError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner import tail_terms
from tuner.planner.tail_terms import PLANNED_BYTES
from tuner.results.records.trial import Outcome
from tuner.search.rungs import FINAL, at_rung
from tuner.store.store import Store
from tuner.task import Task

pytestmark = pytest.mark.slow

RECIPE = RecipePlan(epochs=1, batch_size=32, schedule="warmup", label_smoothing=0.1, solve_again=True)


def plan(task: Task, loaded: OpenModel, epochs: int, share: float = 1.0, backend: str = "torch") -> TrialPlan:
    given = plan_of(task, loaded, alpha=0.2)
    recipe = replace(RECIPE, epochs=epochs)
    runtime = replace(given.runtime, backend=backend)
    data = replace(given.data, share=share)
    return normal_form(replace(given, recipe=recipe, runtime=runtime, data=data))


def run(session: Session, plan: TrialPlan, folder: Path, earlier: Path | None = None) -> Outcome:
    store = Store(folder.parent / "store")
    return session.train(Trial(plan, 7, store, folder / "weights.safetensors", earlier=earlier, keeps=True))


@pytest.mark.parametrize("engine", ["eager", "planned", "onnxruntime"])
def test_a_continued_training_has_the_weights_of_one_without_a_pause(
    task: Task, loaded: OpenModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    if engine == "planned":
        monkeypatch.setattr(tail_terms, "PLANNED_BYTES", 0)
    backend: Backend = OrtBackend() if engine == "onnxruntime" else TorchBackend()
    name = "onnxruntime" if engine == "onnxruntime" else "torch"
    whole = run(opened(backend, task), plan(task, loaded, 3, backend=name), tmp_path / "whole")
    first = run(opened(backend, task), plan(task, loaded, 1, backend=name), tmp_path / "first")
    earlier = tmp_path / "first" / CHECKPOINT
    assert earlier.stat().st_mode & 0o777 == 0o600
    then = run(opened(backend, task), plan(task, loaded, 3, backend=name), tmp_path / "then", earlier)
    assert [len(one.epochs) for one in (whole, first, then)] == [3, 1, 3]
    assert then.epochs[0] == first.epochs[0]
    assert [epoch["loss"] for epoch in then.epochs] == [epoch["loss"] for epoch in whole.epochs]
    wanted, found = (load_file(tmp_path / one / "weights.safetensors") for one in ("whole", "then"))
    assert all(np.array_equal(wanted[key].numpy(), found[key].numpy()) for key in wanted)
    assert then.values["train_seconds"] > first.epochs[0]["seconds"]


def test_a_training_goes_on_with_more_samples(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    run(opened(TorchBackend(), task), plan(task, loaded, 4, share=0.5), tmp_path / "half")
    earlier = tmp_path / "half" / CHECKPOINT
    whole = plan(task, loaded, 4)
    assert whole.line() == plan(task, loaded, 4, share=0.5).line() != replace(whole, split=1).line()
    then = run(opened(TorchBackend(), task), whole, tmp_path / "then", earlier)
    assert [epoch["epoch"] for epoch in then.epochs] == [1, 2, 3, 4]
    steps: list[float] = []
    trial = Trial(whole, 7, Store(tmp_path / "store"), tmp_path / "again" / "w", earlier=earlier, keeps=True)

    def report(progress: object) -> bool:
        steps.extend([progress["step"]] if isinstance(progress, dict) and "step" in progress else [])
        return False

    opened(TorchBackend(), task).train(replace(trial, report=report))
    per_epoch = -(-whole.train_samples // 32)
    assert len(steps) == 2 * per_epoch, "four epochs on half of the samples count as two"
    folded = at_rung(whole, FINAL).trainings[0]
    ended = replace(trial, plan=folded, weights=tmp_path / "folded" / "w", keeps=False, report=report)
    steps.clear()
    outcome = opened(TorchBackend(), task).train(replace(ended, earlier=tmp_path / "then" / CHECKPOINT))
    assert not steps, "what is cross-validated was trained on all samples before"
    assert outcome.values["local_accuracy"] == then.values["local_accuracy"]
    wanted, found = (load_file(path) for path in (tmp_path / "then" / "weights.safetensors", ended.weights))
    assert all(np.array_equal(wanted[key].numpy(), found[key].numpy()) for key in wanted)


def test_another_plans_checkpoint_is_not_continued(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    run(opened(TorchBackend(), task), plan(task, loaded, 1), tmp_path / "first")
    other = replace(plan(task, loaded, 2), split=1)
    outcome = run(opened(TorchBackend(), task), other, tmp_path / "other", tmp_path / "first" / CHECKPOINT)
    alone = run(opened(TorchBackend(), task), other, tmp_path / "alone")
    assert [epoch["loss"] for epoch in outcome.epochs] == [epoch["loss"] for epoch in alone.epochs]


def test_an_undertrained_head_is_worse_than_the_one_that_is_solved_for(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    short = replace(plan(task, loaded, 1), recipe=replace(RECIPE, learning_rate=1e-4))
    own = replace(short, recipe=replace(short.recipe, solve_again=False))
    solved = run(opened(TorchBackend(), task), short, tmp_path / "solved")
    trained = run(opened(TorchBackend(), task), own, tmp_path / "own")
    assert solved.values["local_accuracy"] > trained.values["local_accuracy"] + 0.3
    assert "solved one is kept" in solved.notes[-1]
    assert solved.values["local_loss"] < trained.values["local_loss"]


def test_a_rate_at_which_the_loss_rises_ends_the_training(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    wild = replace(plan(task, loaded, 8), recipe=replace(RECIPE, epochs=8, optimiser="sgd", learning_rate=30.0))
    with pytest.raises(DivergedError, match=r"in epoch \d: lower recipe\.learning_rate, which is 30"):
        run(opened(TorchBackend(), task), wild, tmp_path / "wild")


def test_a_rate_that_decays_is_continued_from_before_its_decay(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    decayed = replace(plan(task, loaded, 5), recipe=replace(RECIPE, epochs=5, schedule="wsd"))
    run(opened(TorchBackend(), task), decayed, tmp_path / "first")
    state = torch.load(tmp_path / "first" / CHECKPOINT, weights_only=True)
    assert len(state["epochs"]) == 4
    longer = replace(decayed, recipe=replace(decayed.recipe, epochs=7))
    then = run(opened(TorchBackend(), task), longer, tmp_path / "then", tmp_path / "first" / CHECKPOINT)
    assert [epoch["loss"] for epoch in then.epochs][:4] == [epoch["loss"] for epoch in state["epochs"]]
    assert len(then.epochs) == 7


HEADS = HeadsPlan("exits-only", (Exit(1, 8),), supervised=1.0)
LABELS_ALONE = replace(HEADS, distilled=0.0)


@pytest.fixture(scope="module")
def start(task: Task, loaded: OpenModel) -> TrialPlan:
    return replace(plan_of(task, loaded, alpha=0.0), recipe=RecipePlan(epochs=3, learning_rate=1e-2))


def trained(task: Task, plan: TrialPlan, folder: Path) -> dict[str, Any]:
    opened(TorchBackend(), task).train(Trial(plan, 1, Store(folder / "store"), folder / "weights.safetensors"))
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
    ("common", "idle", "planned_bytes"),
    [
        ({}, {"recipe": {"patience": 2}}, PLANNED_BYTES),
        *(({"recipe": {"micro_batches": 16}}, {"recipe": {"micro_batches": 20}}, size) for size in (PLANNED_BYTES, 0)),
    ],
)
def test_an_idle_knob_of_a_tail_changes_no_weight(
    common: dict[str, Any],
    idle: dict[str, Any],
    planned_bytes: int,
    task: Task,
    start: TrialPlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail_terms, "PLANNED_BYTES", planned_bytes)
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
    heads: HeadsPlan, idle: dict[str, Any], task: Task, start: TrialPlan, tmp_path: Path
) -> None:
    first = replace(start, split=start.model.num_blocks, heads=heads)
    assert train_alike(task, first, changed(first, idle), tmp_path)


def test_a_knob_with_effect_changes_weights(task: Task, start: TrialPlan, tmp_path: Path) -> None:
    weights = trained(task, start, tmp_path / "first")
    others = trained(task, changed(start, {"recipe": {"weight_decay": 0.1}}), tmp_path / "second")
    assert any(bool((weights[name] != others[name]).any()) for name in weights)
