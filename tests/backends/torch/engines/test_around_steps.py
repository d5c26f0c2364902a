"""What plugins do around a step of the eager loop: optimisers that ask for gradients again."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.extensions import Extensions, OptimiserError
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.opened import TailTraining
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan
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
) -> EagerSteps:
    """Return steps on a tail with a dropout, of samples that `read` changes whenever they are read."""
    task, model = made_up_task(), made_up_model()
    plan = TrialPlan(model, task_info(task), split=model.num_blocks, recipe=recipe)
    torch.manual_seed(0)
    tail = nn.Sequential(
        nn.Flatten(), nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, len(task.labels))
    )
    samples = np.random.default_rng(0).normal(size=(len(ROWS), 6)).astype(np.float32)
    labels = np.arange(len(ROWS), dtype=np.int64) % len(task.labels)
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
