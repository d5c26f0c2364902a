"""Exits inside a tail, which train with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.backends.torch.plans import carried_out
from tests.runtime.bundles import exported_bundle, leaving_at
from tests.sessions import opened
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.step.losses import exit_loss
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import TailTraining
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, TailEdit
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.data_terms import feature_bytes
from tuner.planner.device import nominal
from tuner.planner.price import price
from tuner.planner.tail_terms import worth_planning
from tuner.runtime import ExitsTrainer, Personaliser
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import task_info
from tuner_exits.torch.heads import build_heads
from tuner_exits.torch.joint import JointSteps

pytestmark = pytest.mark.slow
BACKEND = TorchBackend()


def plan_of(task: Task, model: ModelInfo, bits: int | None = 8, epochs: int = 4, **heads: Any) -> TrialPlan:
    given: dict[str, Any] = {"supervised": 1.0, "joint": 1.0, "against": "best"}
    return normal_form(
        TrialPlan(
            model,
            task_info(task),
            DataPlan(0.05),
            split=1,
            heads=HeadsPlan("with-tail", (Exit(1, 8), Exit(2, 8), Exit(3, 8)), **given | heads),
            cache=CachePlan() if bits is None else CachePlan("cache", bits),
            recipe=RecipePlan(epochs=epochs, learning_rate=3e-3),
        )
    )


def test_the_loss_has_the_exits_beyond_the_cut_and_their_gradient_reaches_the_tail(task: Task) -> None:
    loaded = load(task)
    plan = plan_of(task, loaded.info, bits=None, joint=0.5)
    assert plan.split == 1
    shape = loaded.info.blocks[1].in_shape
    values, labels = torch.rand(6, *shape), np.arange(6) % len(task.labels)
    inputs = TailInputs(lambda rows: values[torch.from_numpy(rows)], labels)
    tail, heads = loaded.tail(1), build_heads(plan)
    assert loaded.chain is not None
    steps = JointSteps(loaded.chain, heads, TailTraining(task, plan, tail, inputs, 0))
    steps.begin_epoch()
    logits, truth = tail(values), torch.from_numpy(labels)
    after = [loaded.chain.part(*map(loaded.chain.split_position, (1, cut))) for cut in (2, 3)]
    sides = [
        exit_loss(head(part(values)), logits.detach(), truth, plan.heads)
        for part, head in zip(after, list(heads)[1:], strict=True)
    ]
    expected = torch.nn.functional.cross_entropy(logits, truth) + 0.5 * (sides[0] + sides[1])
    first = next(tail.parameters())
    wanted = torch.autograd.grad(expected, first)[0]
    assert steps.step(np.arange(6), 0.0) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert first.grad is not None
    torch.testing.assert_close(first.grad, wanted, rtol=1e-4, atol=1e-6)
    assert next(heads[0].parameters()).grad is None  # at the cut: it reads what no weight changes
    assert next(heads[1].parameters()).grad is not None
    alone = EagerSteps(TailTraining(task, plan, tail, inputs, 0))
    assert not alone.norms_train
    linear = normal_form(replace(plan, heads=replace(plan.heads, exits=(Exit(2, 0),), ridge=10.0)))
    assert not JointSteps(loaded.chain, build_heads(linear), TailTraining(task, linear, tail, inputs, 0)).norms_train


@pytest.mark.parametrize("bits", [32, None])
def test_exits_in_the_tail_answer_with_the_tails_own_features(
    task: Task, model: ModelInfo, tmp_path: Path, bits: int | None
) -> None:
    plan = plan_of(task, model, bits=bits)
    assert [one.block for one in plan.heads.exits] == [1, 2, 3]
    assert plan.cuts == (1,)
    assert plan.answering_cuts == (1, 2, 3)
    outcome = carried_out(task, plan, tmp_path)
    values = outcome.values
    assert "exits in the tail train with it" in outcome.notes[0]
    assert values["final_local_accuracy"] > 0.9
    assert values["local_accuracy"] > 0.9
    assert values["mean_flops"] < sum(block.flops for block in model.blocks)
    exported = opened(BACKEND, task).export(plan, tmp_path / "weights.safetensors", _folder(tmp_path), trainable=False)
    assert exported.checks["local_accuracy"] == pytest.approx(values["local_accuracy"], abs=0.05)


def test_a_bundle_with_exits_in_closed_form_in_its_tail_learns_again(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    given = plan_of(task, model)
    plan = normal_form(replace(given, heads=replace(given.heads, exits=(Exit(2, 0), Exit(3, 0)), ridge=10.0)))
    out = exported_bundle(task, tmp_path, plan, BACKEND, Store(tmp_path / "store"))
    local = task.local.train
    new = [local.load(row) for row in range(40)]
    before = Personaliser(out).predict(new[0])
    trainer = ExitsTrainer(out, threads=1)
    trainer.add(new, list(map(str, local.labels[:40])))

    features = trainer.features(new)
    first = leaving_at(trainer, 0)
    kept, given_exits = (first.global_accuracy() or 0.0), first.logits(features)
    trainer.train()
    assert before.label == str(local.labels[0])
    first = leaving_at(trainer, 0)
    assert (first.global_accuracy() or 0.0) > kept - 0.05
    assert not np.allclose(first.logits(features), given_exits)


def test_an_exit_beyond_the_cut_needs_a_tail_that_trains_with_it(task: Task, model: ModelInfo) -> None:
    def blocks(plan: TrialPlan) -> list[int]:
        return [one.block for one in plan.heads.exits]

    joint = plan_of(task, model)
    assert blocks(plan_of(task, model, joint=0.0)) == [1]
    assert normal_form(replace(joint, split=3)).heads.joint == 0.0  # none is beyond it
    alone = normal_form(replace(joint, heads=replace(joint.heads, mode="exits-only")))
    assert (alone.heads.joint, blocks(alone)) == (0.0, [1, 2, 3])
    begun = normal_form(replace(joint, heads=replace(joint.heads, global_weight=1.0)))
    assert begun.heads.global_weight == 0.0  # what they read changes
    parts = replace(joint, recipe=replace(joint.recipe, micro_batches=2))
    assert "with exits that train by steps, recipe.micro_batches must be 1" in (BACKEND.supports(parts) or "")
    assert normal_form(parts).recipe.micro_batches == 1
    assert BACKEND.supports(joint) is None
    single = replace(joint, recipe=replace(joint.recipe, batch_size=1))
    assert "recipe.batch_size must be above 1" in (BACKEND.supports(single) or "")
    solved = replace(single, heads=replace(single.heads, exits=(Exit(2, 0),), ridge=10.0))
    assert BACKEND.supports(normal_form(solved)) is None, "linear exits have no norms that need several samples"
    edited = replace(joint, shape=(TailEdit("dropout"),))
    assert "leave tail edit 'dropout' out" in (BACKEND.supports(edited) or "")


def test_what_exits_in_a_tail_cost_is_expected(task: Task, model: ModelInfo) -> None:
    joint, rates = plan_of(task, model), nominal(model)
    alone = normal_form(replace(joint, heads=HeadsPlan()))
    assert price(joint, rates).tensor_bytes > price(alone, rates).tensor_bytes
    assert feature_bytes(joint) == feature_bytes(plan_of(task, model, joint=0.0))  # none is stored for them
    assert price(joint, rates).loop_seconds > price(plan_of(task, model, joint=0.0), rates).loop_seconds
    uncached = plan_of(task, model, bits=None)
    assert price(uncached, rates).loop_seconds > price(plan_of(task, model, bits=None, joint=0.0), rates).loop_seconds
    assert not worth_planning(joint)


def _folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"
