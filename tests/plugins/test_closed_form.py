"""Heads in closed form, as a strategy: one pass, one solution, an ordinary bundle."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.runtime.bundles import exported_bundle
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.lowering import LoweringError, Solver, SolverInputs
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.edits.solved import SolvedSteps, solved_with
from tuner.backends.torch.trial.inputs import TailInputs, inference_prefix
from tuner.backends.torch.trial.opened import TailTraining
from tuner.ort.session import Session
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, LossTerm, RecipePlan
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.device import nominal
from tuner.planner.price import price
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, union_head
from tuner.runtime import Bundle, ExitsTrainer, Personaliser
from tuner.store.store import Store
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_closed_form import ClosedForm, Knobs
from tuner_watch.round import trainer_of


def test_recipe_random_changes_and_loss_terms_have_no_effect() -> None:
    task = replace(example_task(), augment=("flip",))
    plan = ClosedForm().apply(TrialPlan(example_model(4), task), Knobs())
    assert plan.split == 3
    idle = replace(
        plan, recipe=RecipePlan(epochs=7, optimiser="sgd", patience=2), loss=(LossTerm("distill", 1.0, teacher=True),)
    )
    assert normal_form(idle) == normal_form(plan)
    assert normal_form(plan).recipe == RecipePlan(epochs=1)
    assert describe(normal_form(plan)).startswith("solve the head in closed form for ")


def test_the_estimate_has_room_for_the_sums() -> None:
    plan = normal_form(ClosedForm().apply(TrialPlan(example_model(4), example_task()), Knobs()))
    rates = nominal(plan.model)
    features = int(np.prod(plan.model.blocks[-1].in_shape))
    least = price(replace(plan, shape=()), rates).tensor_bytes + 8 * features**2
    assert price(plan, rates).tensor_bytes > least


class Careless(torch.nn.Module, Solver):
    """A solver whose left-out answers are those of too few samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(value.flatten(1))
        return logits

    def solve(self, samples: SolverInputs) -> None:
        self.left_out = np.zeros((int(samples.is_local.sum()) - 1, 10))


def test_left_out_answers_are_one_for_each_local_sample() -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task, plan = digits(), ClosedForm().apply(TrialPlan(example_model(4), example_task()), Knobs())
    read = TailInputs(lambda rows: torch.ones(len(rows), 1, 8, 8), np.zeros(6, np.int64), local_rows=4)
    steps = SolvedSteps(TailTraining(task, plan, Careless(), read, 0))
    steps.step(np.arange(6), 0.0)
    with pytest.raises(LoweringError, match=r"must be finite, \[4, 10\], one row for each local sample, got \[3, 10\]"):
        steps.end_epoch()


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_trial_is_the_solution_on_its_stored_features(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = digits()
    session = opened(TorchBackend(), task)
    plan = normal_form(
        ClosedForm().apply(
            TrialPlan(session.model, task_info(task), data=DataPlan(0.05), cache=CachePlan("cache", 16)), Knobs()
        )
    )
    weights, folder = tmp_path / "weights.safetensors", tmp_path / "bundle"
    outcome = session.train(Trial(plan, 1, Store(tmp_path / "store"), weights))
    assert outcome.values["local_accuracy"] > 0.9
    assert outcome.values["global_accuracy"] > 0.9
    assert 0.9 < outcome.values["local_loo_accuracy"] < 1

    untrained = load(task)
    given = [value.numpy() for value in untrained.tail(plan.split).state_dict().values()]
    prefix = inference_prefix(untrained, plan.split)
    train = training_selections(task, plan)
    with torch.inference_mode():
        parts = [prefix(torch.from_numpy(task.batch(one.samples, one.indices))).numpy() for one in train]
    step = step_of(np.concatenate(parts))
    empty = Domain.empty(parts[0].shape[1], len(task.labels), step)
    local, known = (empty.added(coded(part, step), one.labels()) for part, one in zip(parts, train, strict=True))
    direct = union_head(LinearHead(given[0], given[1]), local, known, solved_with(weights)).head
    assert any("is best by leave-one-out" in note for note in outcome.notes)
    trained = load_file(weights)
    for name, value in zip(("weight", "bias"), (direct.weight, direct.bias), strict=True):
        (own,) = (tensor for key, tensor in trained.items() if key.endswith(name))
        np.testing.assert_allclose(own, value, atol=0.02 * np.abs(value).max())  # the store has 16 bits

    again = opened(TorchBackend(), task)
    second = tmp_path / "again.safetensors"
    again.train(Trial(plan, 2, Store(tmp_path / "store"), second))
    assert second.read_bytes() == weights.read_bytes()

    folder.mkdir()
    exported = opened(TorchBackend(), task).export(plan, weights, folder, trainable=False)
    assert exported.checks["local_accuracy"] == pytest.approx(outcome.values["local_accuracy"], abs=0.01)
    logits = Session(folder / "model.onnx").logits(task.batch(task.local.val, range(8)))
    assert logits.shape == (8, 10)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_exits_with_gates_leave_what_was_known_to_the_head_and_are_solved_for_again_in_a_round(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task, store = digits(), Store(tmp_path / "store")
    model = opened(TorchBackend(), task).model
    begun = TrialPlan(model, task_info(task), data=DataPlan(0.3), cache=CachePlan("cache", 8))
    given = HeadsPlan("with-tail", (Exit(2, 0),), supervised=1.0, distilled=0.0, ridge=1.0, tolerance=0.02)
    plans = {
        gated: ClosedForm().apply(replace(begun, heads=replace(given, gated=gated)), Knobs()) for gated in (False, True)
    }
    values = {}
    for gated, plan in plans.items():
        outcome = opened(TorchBackend(), task).train(
            Trial(normal_form(plan), 1, store, tmp_path / f"{gated}" / "weights.safetensors")
        )
        values[gated] = outcome.values
        assert f"of {len(task.local.train)} calibration samples" in " ".join(outcome.notes)  # none is withheld
    for domain in ("local", "global"):
        assert values[True][f"{domain}_accuracy"] > values[True][f"final_{domain}_accuracy"] - 0.04
    assert values[True]["global_accuracy"] > values[False]["global_accuracy"] + 0.1
    assert values[True]["mean_flops"] < 0.95 * values[True]["flops"]

    out = exported_bundle(task, tmp_path, normal_form(plans[True]), TorchBackend(), store, trainable=True)
    trainer = trainer_of(Bundle.open(out), 1)
    assert isinstance(trainer, ExitsTrainer)
    val = task.local.val
    trainer.add([val.load(row) for row in range(60)], [task.labels[val.labels[row]] for row in range(60)])
    assert trainer.train() == ()
    known = task.global_.val if task.global_ is not None else val
    photos = np.stack([known.load(row) for row in range(100)])
    truth = [task.labels[known.labels[row]] for row in range(100)]
    for folder in (out, trainer.save(tmp_path / "next")):
        answers = Personaliser(Bundle.open(folder)).predict_batch(photos)
        assert np.mean([one.label == label for one, label in zip(answers, truth, strict=True)]) > 0.85
