"""Distillation: the plan, the divergence, and a tail that keeps what the given model knew."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tests.sessions import barely_pretrained
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.losses import LossInputs
from tuner.backends.torch.backend import TorchBackend
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import CachePlan, LossTerm, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.store.store import Store
from tuner.targets import SINGLE_LABEL, MultiLabel, Regression
from tuner.task.info import task_info
from tuner_distill import Distillation, Knobs, divergence, tuner_losses

TERM = LossTerm("distill", 1.0, (("temperature", 2.0),), teacher=True)


def batch(known: int = 4, *, several: bool = False) -> LossInputs:
    draw = torch.Generator().manual_seed(1)
    logits, teacher = (torch.randn(3, 4, generator=draw) for _ in range(2))
    labels = torch.ones(3, 4) if several else torch.zeros(3, dtype=torch.int64)
    return LossInputs(logits, labels, logits, teacher, known, MultiLabel() if several else SINGLE_LABEL)


def test_a_weight_of_0_leaves_the_term_out() -> None:
    plan = TrialPlan(example_model(4), example_task())
    assert Distillation().apply(plan, Knobs(0.0, 1.0)) == plan
    assert Distillation().apply(plan, Knobs(0.5, 4.0)).loss == (
        LossTerm("distill", 0.5, (("temperature", 4.0),), teacher=True),
    )


def test_answers_of_a_regression_differ_by_their_squares() -> None:
    own = replace(batch(several=True), targets=Regression())
    expected = functional.mse_loss(own.logits, own.teacher, reduction="none").mean(1)
    assert torch.equal(divergence(own, {"temperature": 2.0}), expected)


@pytest.mark.parametrize("known", [4, 3])
def test_the_divergence_is_pytorchs_over_known_outputs_times_the_squared_temperature(known: int) -> None:
    own = batch(known)
    ours, theirs = (functional.log_softmax(one[:, :known] / 2, 1) for one in (own.logits, own.teacher))
    expected = 4 * functional.kl_div(ours, theirs, log_target=True, reduction="none").sum(1)
    assert torch.allclose(divergence(own, {"temperature": 2.0}), expected)


def test_with_several_labels_an_output_is_one_bernoulli() -> None:
    own = batch(several=True)
    ours, theirs = torch.sigmoid(own.logits), torch.sigmoid(own.teacher)
    expected = functional.binary_cross_entropy(ours, theirs, reduction="none") - functional.binary_cross_entropy(
        theirs, theirs, reduction="none"
    )
    assert torch.allclose(divergence(own, {"temperature": 1.0}), expected.mean(1), atol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_the_teachers_own_answers_have_no_divergence(several: bool) -> None:
    own = batch(several=several)
    losses = divergence(replace(own, logits=own.teacher), {"temperature": 2.0})
    assert torch.allclose(losses, torch.zeros(3), atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_step_that_trains_again_says_that_it_does_without_the_term(tmp_path: Path) -> None:
    task, added = barely_pretrained(), Extensions(losses=tuner_losses("torch"))
    session = TorchBackend().open(task, added)
    plan = TrialPlan(
        session.model,
        task_info(task),
        split=session.model.num_blocks - 1,
        loss=(TERM,),
        cache=CachePlan("cache", 16),
        recipe=RecipePlan(epochs=1),
    )
    assert session.plan_step(plan) is not None
    weights, folder = tmp_path / "weights.safetensors", tmp_path / "bundle"
    session.train(Trial(plan, 1, Store(tmp_path / "store"), weights))
    folder.mkdir()
    exported = TorchBackend().open(task, added).export(plan, weights, folder, trainable=True)
    assert exported.sections["train"]["left_out"] == ["distill"]
