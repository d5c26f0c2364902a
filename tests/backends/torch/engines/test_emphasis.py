"""Weights of mixed-in samples and balanced classes, in every engine."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.backends.torch.plans import plan_of
from tests.backends.torch.tails import relative
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.engines.onnxruntime import OrtSteps
from tuner.backends.torch.engines.planned import PlannedSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.trial.inputs import training_inputs
from tuner.backends.torch.trial.opened import OpenTask, TailTraining, TrialStepsFactory
from tuner.backends.torch.trial.tail import TailProcedure
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.store.store import Store
from tuner.task import Task

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plan(task: Task, loaded: OpenModel) -> TrialPlan:
    recipe = RecipePlan(epochs=2, batch_size=48, optimiser="sgd", learning_rate=1e-2, freeze_bn=False)
    plan = replace(plan_of(task, loaded), data=DataPlan(0.1, weight=4.0, balance=True), recipe=recipe)
    assert plan.global_samples
    assert plan.train_samples % 48 != 0  # a partial last batch
    return plan


def losses(task: Task, plan: TrialPlan, folder: Path, by: TrialStepsFactory) -> list[float]:
    opened = OpenTask(task, load(task), Extensions(), by).described_by(plan)
    trial = Trial(plan, 1, Store(folder / "store"), folder / "weights.safetensors")
    return [epoch["loss"] for epoch in TailProcedure(trial, opened).carry_out().epochs]


def test_every_engine_trains_alike_by_them(task: Task, plan: TrialPlan, tmp_path: Path) -> None:
    eager, planned, ort = (losses(task, plan, tmp_path, by) for by in (EagerSteps, PlannedSteps, OrtSteps))
    assert relative(planned, eager) < 1e-4
    assert relative(ort, eager) < 1e-3
    for other in (DataPlan(0.1, balance=True), DataPlan(0.1, weight=4.0)):
        assert relative(losses(task, replace(plan, data=other), tmp_path, EagerSteps), eager) > 1e-3


@pytest.mark.parametrize("by", [EagerSteps, PlannedSteps])
def test_parts_of_a_batch_share_its_weight(by: TrialStepsFactory, task: Task, plan: TrialPlan, tmp_path: Path) -> None:
    plan = replace(plan, recipe=replace(plan.recipe, freeze_bn=True))
    cut = replace(plan, recipe=replace(plan.recipe, micro_batches=3))
    one, parts = (losses(task, own, tmp_path, by) for own in (plan, cut))
    assert relative(parts, one) < 1e-4


def test_a_weight_of_two_is_the_sample_twice(task: Task, plan: TrialPlan, tmp_path: Path) -> None:
    model, plan = load(task), replace(plan, recipe=replace(plan.recipe, freeze_bn=True))
    access = Access(task, model, Store(tmp_path), 1, lambda _: False)
    fill(access, [plan])
    inputs = training_inputs(access, plan, training_selections(task, plan))
    weights = np.ones(len(inputs.labels), np.float32)
    weights[1] = 2
    weighted = EagerSteps(TailTraining(task, plan, model.tail(plan.split), replace(inputs, weights=weights), 0))
    twice = EagerSteps(TailTraining(task, plan, load(task).tail(plan.split), inputs, 0))
    for steps in (weighted, twice):
        steps.begin_epoch()
    ours, theirs = (
        [steps.step(np.array(rows), 0.05) for _ in range(3)]
        for steps, rows in ((weighted, [0, 1, 2]), (twice, [0, 1, 1, 2]))
    )
    assert relative(ours, theirs) < 1e-5


@pytest.mark.parametrize("data", [DataPlan(0.1, weight=2.0), DataPlan(balance=True)])
@pytest.mark.parametrize("backend", [TorchBackend(), OrtBackend()])
def test_exits_refuse_them(data: DataPlan, backend: TorchBackend, plan: TrialPlan) -> None:
    exits = replace(plan, data=data, heads=HeadsPlan(mode="with-tail", exits=(Exit(1, 8),)))
    assert "train" in (backend.supports(exits) or "")
    assert "data.weight to 1 and data.balance to false" in (TorchBackend().supports(exits) or "")
    assert backend.supports(replace(plan, data=data)) is None
