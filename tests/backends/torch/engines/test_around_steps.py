"""What plugins do around a step of the eager loop: change its batch, and ask for its gradients again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.batches import Batch, BatchError
from tuner.backends.extensions import Extensions, OptimiserError
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import TailTraining
from tuner.plan.parts import DataEdit, DataPlan, EditTraits, LossTerm, RecipePlan, TailEdit
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan, normal_form
from tuner.targets import MultiLabel, Targets
from tuner.task.info import task_info
from tuner_testing.models.lowered import made_up_model
from tuner_testing.models.made_up import made_up_task

ROWS = np.arange(12)


class Twice(torch.optim.Optimizer):
    """Keeps the losses and gradients of two calls at the same weights, then moves, and asks once more."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.losses, self.gradients = list[float](), list[torch.Tensor]()

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor]) -> None:  # type: ignore[override]  # it needs one
        for _ in range(2):
            self.losses.append(float(closure()))
            self.gradients.append(torch.cat([own.grad.flatten() for own in self.param_groups[0]["params"]]))
        for own in self.param_groups[0]["params"]:
            own.sub_(self.param_groups[0]["lr"] * own.grad)
        self.losses.append(float(closure()))


class Failing(Twice):
    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor]) -> None:  # type: ignore[override]  # noqa: ARG002
        raise RuntimeError("no way")


class Idle(Twice):
    def step(self, closure: Callable[[], torch.Tensor]) -> None: ...  # type: ignore[override]


def steps_of(
    recipe: RecipePlan,
    extensions: Extensions,
    read: Callable[[Floats], Floats] = lambda one: one,
    dropout: float = 0.5,
    changes: tuple[DataEdit, ...] = (),
    targets: Targets | None = None,
) -> EagerSteps:
    """Return steps on a tail with a dropout, of samples that `read` changes whenever they are read."""
    task: Any = made_up_task()
    model = made_up_model()
    plan = TrialPlan(model, task_info(task), DataPlan(batches=changes), split=model.num_blocks, recipe=recipe)
    torch.manual_seed(0)
    tail = nn.Sequential(
        nn.Flatten(), nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, len(task.labels))
    )
    samples = np.random.default_rng(0).normal(size=(len(ROWS), 6)).astype(np.float32)
    labels: Any = np.arange(len(ROWS), dtype=np.int64) % len(task.labels)
    if targets is not None:
        task, labels = SimpleNamespace(targets=targets, labels=task.labels), np.eye(5, dtype=np.float32)[labels]
    inputs = TailInputs(lambda rows: torch.from_numpy(read(samples[rows])), labels)
    steps = EagerSteps(TailTraining(task, plan, tail, inputs, 0, extensions))
    steps.begin_epoch()
    return steps


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_closure_gives_the_gradients_of_the_same_batch_again(micro_batches: int) -> None:
    noise = np.random.default_rng(1)
    recipe = RecipePlan(optimiser="twice", batch_size=len(ROWS), micro_batches=micro_batches)
    made: list[Twice] = []

    def twice(parameters: Sequence[Any], _recipe: RecipePlan) -> Twice:
        made.append(Twice(parameters))
        return made[0]

    steps = steps_of(
        recipe,
        Extensions(optimisers={"twice": twice}),
        lambda one: one + noise.normal(size=one.shape).astype(np.float32),
    )
    loss = steps.step(ROWS, 0.01)
    assert made[0].losses[0] == made[0].losses[1] == pytest.approx(loss, rel=1e-6)  # of one draw of dropouts
    assert torch.equal(*made[0].gradients)
    assert made[0].losses[2] < loss
    assert steps.step(ROWS, 0.01) != made[0].losses[2]  # the next step draws anew


def test_lbfgs_of_pytorch_is_an_optimiser_of_a_plugin() -> None:
    recipe = RecipePlan(optimiser="lbfgs", batch_size=len(ROWS), learning_rate=1.0)
    lbfgs = Extensions(optimisers={"lbfgs": lambda own, _recipe: torch.optim.LBFGS(own)})
    steps = steps_of(recipe, lbfgs, dropout=0.0)
    losses = [steps.step(ROWS, 1.0) for _ in range(4)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Failing, r"optimiser 'own': step raised RuntimeError: no way \(test_around_steps.py, line \d+\)"),
        (Idle, "optimiser 'own': its step takes a closure, so it must call it"),
    ],
)
def test_a_step_that_fails_names_the_optimiser_and_the_line(kind: type[Twice], message: str) -> None:
    factories: Mapping[str, Any] = {"own": lambda parameters, _recipe: kind(parameters)}
    steps = steps_of(RecipePlan(optimiser="own", batch_size=len(ROWS)), Extensions(optimisers=factories))
    with pytest.raises(OptimiserError, match=message):
        steps.step(ROWS, 0.01)


def halved(batch: Batch, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Mix every sample with the next one, by halves."""
    share = settings["share"]
    mixed = (one * (1 - share) + one.roll(1, 0) * share for one in (batch.inputs, batch.labels))
    return next(mixed), next(mixed)


def raising(batch: Batch, _settings: Mapping[str, Any]) -> tuple[Any, Any]:
    raise ValueError(f"{len(batch.inputs)} are too few")


HALVES, RECIPE = DataEdit("halves", (("share", 0.5),)), RecipePlan(batch_size=len(ROWS), learning_rate=0.1)


@pytest.mark.parametrize("targets", [None, MultiLabel()])
def test_the_loss_of_a_mixed_batch_is_the_mean_over_both_labels(targets: Targets | None) -> None:
    added = Extensions(batches={"halves": halved})
    mixed = steps_of(RECIPE, added, dropout=0.0, changes=(HALVES,), targets=targets)
    seen = samples_of(mixed)
    inputs = (seen + seen.roll(1, 0)) / 2
    plain = steps_of(RECIPE, added, lambda _: inputs.numpy(), dropout=0.0, targets=targets)
    shifted = steps_of(RECIPE, added, lambda _: inputs.roll(-1, 0).numpy(), dropout=0.0, targets=targets)
    expected = (plain.step(ROWS, 0.0) + shifted.step(ROWS, 0.0)) / 2
    assert mixed.step(ROWS, 0.0) == pytest.approx(expected, rel=1e-5)


def samples_of(steps: EagerSteps) -> torch.Tensor:
    return steps._inputs.read(ROWS)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising, r"change of batches 'halves': ValueError: 12 are too few \(test_around_steps.py, line \d+\)"),
        (lambda batch, _: (batch.inputs, batch.labels.argmax(1)), r"it was given, .*\[12, 5\]'\], but .* \[12\]'\]$"),
        (lambda batch, _: batch.inputs, "but it gave tensor"),
    ],
)
def test_a_change_of_batches_that_breaks_a_rule_is_named(function: Any, message: str) -> None:
    steps = steps_of(RECIPE, Extensions(batches={"halves": function}), changes=(HALVES,))
    with pytest.raises(BatchError, match=message):
        steps.step(ROWS, 0.0)


def test_a_plan_names_changes_of_batches_and_says_with_what_they_do_not_go() -> None:
    plan = TrialPlan(made_up_model(), task_info(made_up_task()), DataPlan(batches=(HALVES,)), split=1)
    assert from_toml(to_toml(plan)) == normal_form(plan) == plan
    assert plan.key() != replace(plan, data=DataPlan()).key()
    assert "halves (share 0.5)" in describe(plan)
    assert TorchBackend().supports(plan) is None
    assert "make the change of batches 'halves': use --backend torch" in str(OrtBackend().supports(plan))
    term = replace(plan, loss=(LossTerm("l2", 1.0),))
    assert "'l2' reads samples and labels as they are, but 'halves' changes" in str(TorchBackend().supports(term))
    solved = replace(plan, shape=(TailEdit("solved", traits=EditTraits(solves=True)),))
    assert normal_form(solved).data.batches == ()  # no step has a batch
