"""Terms of the loss and optimisers that plugins add, weights of samples and balanced classes, in every engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.backends.torch.plans import plan_of
from tests.backends.torch.tails import relative
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions, OptimiserError
from tuner.backends.losses import LossError, LossInputs
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.engines.onnxruntime import OrtSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.trial.inputs import training_inputs
from tuner.backends.torch.trial.opened import OpenTask, TailTraining, TrialStepsFactory
from tuner.backends.torch.trial.scoring import logits
from tuner.backends.torch.trial.tail import TailProcedure
from tuner.errors import TrainingError, UnsupportedError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import DataPlan, LossTerm, RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner import tail_terms
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner_distill import tuner_losses
from tuner_exits.torch.procedure import ExitsProcedure
from tuner_planned.torch import planned_or_eager
from tuner_planned.torch.steps import PlannedSteps

pytestmark = pytest.mark.slow
DISTILL = LossTerm("distill", 1.0, (("temperature", 2.0),), teacher=True)
ENGINES = (EagerSteps, PlannedSteps, OrtSteps)


def centred(batch: LossInputs, settings: Mapping[str, Any]) -> torch.Tensor:
    """Logits that are far from 0 cost; it reads the features too, and has no teacher."""
    assert batch.teacher is None
    loss: torch.Tensor = batch.logits.square().mean(1) * settings["scale"] + 0 * batch.features.flatten(1).mean(1)
    return loss


def scalar(batch: LossInputs, _settings: Mapping[str, Any]) -> torch.Tensor:
    loss: torch.Tensor = batch.logits.square().mean()
    return loss


def untraceable(batch: LossInputs, _settings: Mapping[str, Any]) -> torch.Tensor:
    loss: torch.Tensor = batch.logits.square().mean(1)
    return loss if float(loss.sum()) > 0 else -loss


class Lion(torch.optim.Optimizer):
    """Chen et al., Symbolic Discovery of Optimization Algorithms (2023), algorithm 2."""

    def __init__(self, parameters: Sequence[Any], rate: float, decay: float) -> None:
        super().__init__(parameters, {"lr": rate, "decay": decay})

    @torch.no_grad()
    def step(self, _closure: Any = None) -> None:  # type: ignore[override]  # as torch's, without a loss
        for group in self.param_groups:
            for value in group["params"]:
                mean = self.state[value].setdefault("mean", torch.zeros_like(value))
                value.mul_(1 - group["lr"] * group["decay"])
                value.sub_(group["lr"] * torch.sign(0.9 * mean + 0.1 * value.grad))
                mean.mul_(0.99).add_(value.grad, alpha=0.01)


def lion(parameters: Sequence[Any], recipe: RecipePlan) -> Lion:
    return Lion(parameters, recipe.learning_rate, recipe.weight_decay)


ADDED = Extensions(
    losses={**tuner_losses("torch"), "centred": centred, "scalar": scalar, "untraceable": untraceable},
    optimisers={"lion": lion, "wrong": lambda parameters, _recipe: parameters},
)


@pytest.fixture(scope="module")
def plan(task: Task, loaded: OpenModel) -> TrialPlan:
    recipe = RecipePlan(epochs=2, batch_size=48, optimiser="sgd", learning_rate=1e-2)
    plan = replace(plan_of(task, loaded), recipe=recipe)
    assert plan.train_samples % 48 != 0  # a partial last batch
    return plan


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def losses_of(task: Task, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[float]]:
    """Train a plan on an engine, once; give the loss of each epoch."""
    folder = tmp_path_factory.mktemp("added")

    @cache
    def of(plan: TrialPlan, by: TrialStepsFactory) -> list[float]:
        return losses(trained(task, plan, store, folder, by))

    return of


def trained(task: Task, plan: TrialPlan, store: Store, folder: Path, by: TrialStepsFactory) -> Outcome:
    opened = OpenTask(task, load(task), ADDED, by).described_by(plan)
    return TailProcedure(Trial(plan, 1, store, folder / "weights.safetensors"), opened).carry_out()


def losses(outcome: Outcome) -> list[float]:
    return [epoch["loss"] for epoch in outcome.epochs]


@pytest.mark.parametrize("terms", [(DISTILL,), (LossTerm("centred", 0.5, (("scale", 0.1),)), DISTILL)])
def test_every_engine_trains_the_same_loss(
    terms: tuple[LossTerm, ...], plan: TrialPlan, losses_of: Callable[..., list[float]]
) -> None:
    eager, planned, ort = (losses_of(replace(plan, loss=terms), by) for by in ENGINES)
    assert relative(planned, eager) < 1e-4
    assert relative(ort, eager) < 1e-3
    assert relative(losses_of(plan, EagerSteps), eager) > 1e-2


@pytest.mark.parametrize("by", [EagerSteps, PlannedSteps])
def test_micro_batches_train_the_same(
    by: TrialStepsFactory, plan: TrialPlan, emphasised: TrialPlan, losses_of: Callable[..., list[float]]
) -> None:
    for whole in (replace(plan, loss=(DISTILL,)), emphasised):
        cut = replace(whole, recipe=replace(whole.recipe, micro_batches=3))
        assert relative(losses_of(cut, by), losses_of(whole, by)) < 1e-4


def test_the_trials_loss_is_the_tasks_plus_the_weighted_mean_of_the_term(
    task: Task, plan: TrialPlan, store: Store
) -> None:
    plan = replace(plan, loss=(replace(DISTILL, weight=0.5),))
    model = load(task)
    access = Access(task, model, store, 1, lambda _: False)
    fill(access, [plan])
    inputs, rows = training_inputs(access, plan, training_selections(task, plan)), np.arange(8)
    teacher = np.random.default_rng(0).normal(size=(len(inputs.labels), len(task.labels))).astype(np.float32)
    tail = model.tail(plan.split)
    steps = EagerSteps(TailTraining(task, plan, tail, replace(inputs, teacher=teacher), 0, ADDED))
    answers = torch.from_numpy(logits(tail, replace(inputs, labels=inputs.labels[:8])))
    steps.begin_epoch()
    known = len(task.head_rows)
    assert 0 < known < len(task.labels)
    ours, theirs = (functional.log_softmax(one[:, :known] / 2, 1) for one in (answers, torch.from_numpy(teacher[:8])))
    term = 4 * functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")
    expected = functional.cross_entropy(answers, torch.from_numpy(inputs.labels[:8])) + 0.5 * term
    assert steps.step(rows, 1e-3) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("cached", [True, False])
def test_the_teacher_is_the_given_model_on_unchanged_samples(
    cached: bool, task: Task, plan: TrialPlan, store: Store, tmp_path: Path
) -> None:
    seen: list[np.ndarray[Any, Any] | None] = []

    def noting(training: TailTraining) -> EagerSteps:
        seen.append(training.inputs.teacher)
        return EagerSteps(training)

    bits = replace(plan.cache, bits=32, augment=1.0) if cached else replace(plan.cache, by="none", bits=32, augment=1.0)
    plan = replace(plan, cache=bits, loss=(DISTILL,), recipe=replace(plan.recipe, epochs=1))
    trained(task, plan, store, tmp_path, noting)
    (teacher,) = seen
    assert teacher is not None
    model = load(task).model
    with torch.inference_mode():
        given = model(torch.from_numpy(task.batch(task.local.train, range(8)))).numpy()
    assert teacher.shape == (plan.train_samples, len(task.labels))
    assert np.allclose(teacher[:8], given, atol=1e-3)
    (replayed,) = training_selections(task, plan)[1:]
    with torch.inference_mode():
        batch = torch.from_numpy(task.batch(replayed.samples, replayed.indices[-8:].tolist()))
        assert np.allclose(teacher[-8:], model(batch).numpy(), atol=1e-3)
    trained(task, replace(plan, loss=()), store, tmp_path, noting)
    assert seen[1] is None


def test_distillation_keeps_the_answers_nearer_to_the_given_models(
    task: Task, plan: TrialPlan, store: Store, tmp_path: Path
) -> None:
    known = len(task.head_rows)
    access = Access(task, load(task), store, 1, lambda _: False)
    fill(access, [plan])
    inputs = training_inputs(access, plan, training_selections(task, plan))
    given = logits(load(task).tail(plan.split), inputs)[:, :known]
    distances = []
    for weight in (None, 2.0):
        own = replace(plan, loss=() if weight is None else (replace(DISTILL, weight=weight),))
        model = load(task)
        opened = OpenTask(task, model, ADDED, EagerSteps).described_by(own)
        TailProcedure(Trial(own, 1, store, tmp_path / "weights.safetensors"), opened).carry_out()
        tail = model.tail(plan.split)
        answers = torch.from_numpy(logits(tail, inputs)[:, :known])
        ours, theirs = (functional.log_softmax(one, 1) for one in (answers, torch.from_numpy(given)))
        distances.append(float(functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")))
    assert distances[1] < 0.7 * distances[0]


def test_a_term_that_cannot_be_traced_runs_eagerly_and_onnx_runtime_refuses_it(
    task: Task, plan: TrialPlan, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_terms, "PLANNED_BYTES", 0)
    plan = replace(plan, loss=(LossTerm("untraceable", 0.1),), recipe=replace(plan.recipe, epochs=1))
    outcome = trained(task, plan, store, tmp_path, planned_or_eager)
    assert outcome.notes[0].startswith("run by PyTorch's eager loop: this tail cannot be traced")
    with pytest.raises(UnsupportedError, match="cannot be traced"):
        trained(task, plan, store, tmp_path, OrtSteps)


def test_what_is_not_what_was_asked_for_is_named(task: Task, plan: TrialPlan, store: Store, tmp_path: Path) -> None:
    with pytest.raises(LossError, match=r"'scalar': it must return one loss per sample, \[48\], but it returned \[\]"):
        trained(task, replace(plan, loss=(LossTerm("scalar", 0.1),)), store, tmp_path, EagerSteps)
    wrong = replace(plan, recipe=replace(plan.recipe, optimiser="wrong"))
    with pytest.raises(OptimiserError, match=r"'wrong': its factory must return a torch\.optim\.Optimizer"):
        trained(task, wrong, store, tmp_path, EagerSteps)


def test_a_toy_optimiser_trains_the_digits(
    task: Task, plan: TrialPlan, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_terms, "PLANNED_BYTES", 0)
    plan = replace(plan, recipe=RecipePlan(epochs=4, optimiser="lion", learning_rate=1e-3))
    outcome = trained(task, plan, store, tmp_path, planned_or_eager)
    assert outcome.notes[0] == "run by PyTorch's eager loop: the planned executor does not have optimiser lion"
    assert losses(outcome)[-1] < 0.5 * losses(outcome)[0]
    with pytest.raises(UnsupportedError, match="must update by sgd or adam or adamw, got 'lion'"):
        trained(task, plan, store, tmp_path, OrtSteps)


def test_exits_train_by_it_too(task: Task, plan: TrialPlan, store: Store, tmp_path: Path) -> None:
    heads = HeadsPlan("exits-only", (Exit(2, 8),))
    recipe = RecipePlan(epochs=2, optimiser="lion", learning_rate=1e-3)
    plan = normal_form(replace(plan, heads=heads, recipe=recipe, loss=(DISTILL,)))
    opened = OpenTask(task, load(task), ADDED, EagerSteps).described_by(plan)
    trial = Trial(plan, 1, store, tmp_path / "weights.safetensors")
    first, last = losses(ExitsProcedure(trial, opened).carry_out())
    assert last < first
    with pytest.raises(TrainingError, match="no installed plugin realises optimiser 'lion'"):
        ExitsProcedure(trial, replace(opened, extensions=Extensions())).carry_out()


def test_what_no_plugin_gives_is_lacking(plan: TrialPlan) -> None:
    term, lions = replace(plan, loss=(DISTILL,)), replace(plan, recipe=replace(plan.recipe, optimiser="lion"))
    assert "realises loss term 'distill' on torch (there are: none)" in str(Extensions().lacking(term))
    assert "realises optimiser 'lion' on torch (there are: adam, adamw, sgd)" in str(Extensions().lacking(lions))
    assert [ADDED.lacking(one) for one in (plan, term, lions)] == [None] * 3
    assert TorchBackend().supports(lions) is None
    assert OrtBackend().supports(term) is None
    assert OrtBackend().supports(lions) == "backend onnxruntime does not have optimiser 'lion': use --backend torch"


@pytest.fixture(scope="module")
def emphasised(plan: TrialPlan) -> TrialPlan:
    """Weights of what is mixed in, and balanced classes."""
    made = replace(plan, data=DataPlan(0.1, weight=4.0, balance=True))
    assert made.global_samples
    return made


def test_every_engine_emphasises_alike(emphasised: TrialPlan, losses_of: Callable[..., list[float]]) -> None:
    plan = replace(emphasised, recipe=replace(emphasised.recipe, freeze_bn=False))
    eager, planned, ort = (losses_of(plan, by) for by in ENGINES)
    assert relative(planned, eager) < 1e-4
    assert relative(ort, eager) < 1e-3
    for other in (DataPlan(0.1, balance=True), DataPlan(0.1, weight=4.0)):
        assert relative(losses_of(replace(plan, data=other), EagerSteps), eager) > 1e-3


def test_a_weight_of_two_is_the_sample_twice(task: Task, emphasised: TrialPlan, store: Store) -> None:
    model, plan = load(task), emphasised
    access = Access(task, model, store, 1, lambda _: False)
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
