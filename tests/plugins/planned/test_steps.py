"""The planned executor in a trial: the eager loop's losses, micro-batches that change nothing, notes of who ran."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from tests.backends.torch.tails import relative
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.measure import steps_are_traced
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import OpenTask, TailTraining
from tuner.backends.torch.trial.tail import TailProcedure
from tuner.distribution import SWITCH
from tuner.plan.parts import EditTraits, Optimiser, RecipePlan, TailEdit
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.planner import tail_terms
from tuner.planner.memory.placement import Tensor
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_planned.torch import planned_or_eager
from tuner_planned.torch.library_memory import nothing
from tuner_planned.torch.step_plan import StepRun, flops_of, in_sequence, planned_step, steps_of
from tuner_planned.torch.steps import PlannedSteps

pytestmark = pytest.mark.slow
RECIPE = RecipePlan(epochs=2, optimiser="sgd", learning_rate=1e-2)
Trained = Callable[[TrialPlan, type[EagerSteps]], Outcome]


@pytest.fixture(scope="module")
def task() -> Task:
    return digits()


@pytest.fixture(scope="module")
def whole(task: Task) -> TrialPlan:
    """Training the whole model on 160 samples: batches of 48 leave a partial one."""
    model = opened(TorchBackend(), task).model
    return TrialPlan(model, task_info(task), recipe=replace(RECIPE, batch_size=48))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan every step, however small."""
    monkeypatch.setattr(tail_terms, "PLANNED_BYTES", 0)


@pytest.fixture(scope="module")
def trained(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Train a plan on an engine, once."""
    folder = tmp_path_factory.mktemp("planned")

    @cache
    def of(plan: TrialPlan, by: type[EagerSteps]) -> Outcome:
        weights = folder / by.__name__ / plan.key() / "weights.safetensors"
        task_opened = OpenTask(task, load(task), Extensions(), by).described_by(plan)
        return TailProcedure(Trial(plan, 1, Store(folder / "store"), weights), task_opened).carry_out()

    return of


def losses(outcome: Outcome) -> list[float]:
    return [epoch["loss"] for epoch in outcome.epochs]


def test_both_loops_train_alike_with_a_partial_last_batch(trained: Trained, whole: TrialPlan) -> None:
    assert whole.train_samples % whole.recipe.batch_size != 0
    ours, theirs = (trained(whole, by) for by in (PlannedSteps, EagerSteps))
    assert relative(losses(ours), losses(theirs)) < 1e-4
    assert ours.values["local_accuracy"] == pytest.approx(theirs.values["local_accuracy"], abs=0.01)
    assert ours.notes[0].startswith("run by the planned executor")


def test_all_gradients_of_a_batch_are_clipped_together(trained: Trained, whole: TrialPlan) -> None:
    clipped = replace(whole, recipe=replace(whole.recipe, clip=0.1, micro_batches=2))
    assert "clip 0.1" in describe(clipped)
    ours, theirs = (losses(trained(clipped, by)) for by in (PlannedSteps, EagerSteps))
    assert relative(ours, theirs) < 1e-4
    assert theirs[1] > losses(trained(whole, EagerSteps))[1] + 0.01  # shorter steps


@pytest.mark.parametrize("by", [PlannedSteps, EagerSteps])
def test_micro_batches_train_the_same(by: type[EagerSteps], trained: Trained, whole: TrialPlan) -> None:
    cut = replace(whole, recipe=replace(whole.recipe, micro_batches=5))
    assert relative(losses(trained(cut, by)), losses(trained(whole, by))) < 1e-4


def test_micro_batches_take_less_memory(whole: TrialPlan) -> None:
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    tail_of = replace(whole.model, blocks=(replace(whole.model.blocks[0], in_shape=(1, 16, 16)),))
    plan = replace(whole, model=tail_of)
    cut = replace(plan, recipe=replace(plan.recipe, micro_batches=4))
    one, parts = (planned_step(net, each, CROSS_ENTROPY, nothing) for each in (plan, cut))
    assert parts.peak_bytes < 0.5 * one.peak_bytes
    assert parts.flops == one.flops
    assert len({tensor.name for tensor in parts.tensors}) == len(parts.tensors)
    assert all(0 <= tensor.first <= tensor.last < len(parts.steps) for tensor in parts.tensors)


def test_flops_are_counted_by_operator(whole: TrialPlan) -> None:
    model = replace(whole.model, outputs=10, blocks=(replace(whole.model.blocks[0], in_shape=(64,)),))
    (step,) = steps_of(nn.Linear(64, 10), replace(whole, model=model), CROSS_ENTROPY)
    assert flops_of(step) == 2 * 2 * 48 * 64 * 10  # forward, and the weight's gradient: the input's is not needed


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_the_planner_knows_what_the_steps_have_in_memory(optimiser: Optimiser, task: Task, whole: TrialPlan) -> None:
    plan = replace(whole, recipe=replace(whole.recipe, optimiser=optimiser))
    step = opened(TorchBackend(), task).plan_step(plan)
    assert step is not None
    state = 4 * sum(block.parameters for block in plan.model.blocks) * (1 if optimiser == "sgd" else 2)
    assert sum(one.nbytes for one in step.tensors if one.kind == "state") == state
    assert step.peak_bytes > state
    assert not any(one.kind == "weight" for one in step.tensors)


class Noisy(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + torch.rand_like(value)


def training(task: Task, plan: TrialPlan, *layers: nn.Module) -> TailTraining:
    inputs = TailInputs(lambda batch: torch.ones(len(batch), 1, 8, 8), np.arange(16) % 10)
    return TailTraining(task, plan, nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 10)), inputs, 0)


@pytest.mark.usefixtures("always")
def test_what_cannot_be_traced_runs_eagerly_and_the_notes_say_why(task: Task, whole: TrialPlan) -> None:
    steps = planned_or_eager(training(task, whole, Noisy()))
    assert type(steps) is EagerSteps
    assert steps.notes[0].startswith("run by PyTorch's eager loop: a step may draw random numbers for dropouts only")


def test_small_steps_run_eagerly(task: Task, whole: TrialPlan) -> None:
    steps = planned_or_eager(training(task, whole))
    assert type(steps) is EagerSteps
    assert "the planned executor is used from 1,024 MB on" in steps.notes[0]
    limited = replace(whole, runtime=replace(whole.runtime, memory_bytes=10**9))
    steps = planned_or_eager(training(task, limited))
    assert "the planned executor is used from 64 MB on" in steps.notes[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"recipe": RecipePlan(freeze_bn=False, micro_batches=2)}, "with recipe.freeze_bn = false"),
        (
            {"recipe": RecipePlan(micro_batches=2), "shape": (TailEdit("width", (), EditTraits(trains_norms=True)),)},
            "with tail edit 'width'",
        ),
    ],
)
def test_micro_batches_are_refused_where_a_batch_norm_trains(
    change: dict[str, object], reason: str, whole: TrialPlan
) -> None:
    backend = TorchBackend()
    said = backend.supports(replace(whole, **change))  # type: ignore[arg-type]  # parts of a plan
    assert said is not None
    assert reason in said
    assert backend.supports(replace(whole, recipe=RecipePlan(micro_batches=2))) is None


def test_flops_of_a_depthwise_convolutions_gradients_are_those_of_its_own_products(whole: TrialPlan) -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
    model = replace(whole.model, outputs=10, blocks=(replace(whole.model.blocks[0], in_shape=(1, 16, 16)),))
    (step,) = steps_of(net, replace(whole, model=model), CROSS_ENTROPY)
    dense, depthwise, linear = 14 * 14 * 8 * 9, 12 * 12 * 8 * 9, 8 * 10
    assert flops_of(step) == 2 * 48 * (2 * dense + 3 * depthwise + 3 * linear)  # no gradient of the net's input


@pytest.mark.usefixtures("always")
def test_without_the_plugin_the_eager_loop_runs_and_no_step_is_planned(
    task: Task, whole: TrialPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "-planned")
    tail_terms.planned_executor.cache_clear()
    try:
        session = TorchBackend().open(task, Extensions())
        assert not tail_terms.worth_planning(whole)
        assert session.plan_step(whole) is None
        assert not steps_are_traced(whole.model)
    finally:
        tail_terms.planned_executor.cache_clear()


def test_programs_in_a_row_share_what_lasts() -> None:
    adding = StepRun(
        (
            Tensor("w", 100, 0, 1, "weight"),
            Tensor("sum.w", 10, 0, 1, "state"),
            Tensor("code", 1, 0, 1, "library"),
            Tensor("a", 5, 0, 1, "saved"),
        ),
        ("forward", "backward"),
        7,
        3,
    )
    last = StepRun((*adding.tensors, Tensor("mean.w", 20, 0, 1, "state")), ("forward", "update"), 8)
    plan = in_sequence((adding, last))
    assert plan.steps == ("forward", "backward", "forward", "update")
    assert plan.flops == 3 * 7 + 8
    assert {tensor.name: (tensor.first, tensor.last) for tensor in plan.tensors} == {
        "sum.w": (0, 3),
        "mean.w": (0, 3),
        "code": (0, 3),
        "a (1)": (0, 1),
        "a": (2, 3),
    }
    assert plan.peak_bytes == 10 + 20 + 1 + 5
