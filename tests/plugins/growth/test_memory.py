"""What training takes at other widths: exact for what is kept, before anything grows."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tuner.backends.lowering import Training
from tuner.backends.torch.model.graph.blocks import saved_bytes
from tuner.backends.torch.model.resize import install
from tuner.backends.torch.trial.edits.evolving import first_step
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FLOAT_BYTES
from tuner_growth.edit import Edit
from tuner_growth.torch.cost import network_cost
from tuner_growth.torch.tail import BACKWARD, GrowingTail, training_bytes
from tuner_growth.torch.widths import find, selected, traced

BATCH = 10
EXAMPLE = torch.zeros(1, 2, 12, 12)


def separable() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU6(), nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 6, 1),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 8), nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("wider", [(4, 6, 8), (5, 6, 8), (4, 9, 8), (7, 11, 30)])
def test_what_forward_keeps_is_known_for_any_widths(wider: tuple[int, ...]) -> None:
    body = traced(separable())
    found, recipe = find(body), RecipePlan(batch_size=BATCH, optimiser="sgd")
    cost = network_cost(body, found, EXAMPLE)
    training = Training(torch.optim.SGD(body.parameters()), EXAMPLE, lambda _: torch.zeros(()), 1, 0, recipe)
    needed = training_bytes(body, found.growable, cost, training)
    for width, size in zip(found.growable, wider, strict=True):
        again = [index % width.size for index in range(size)]
        install(body, selected(body, replace(width, size=width.size), again))
    weights = 3 * FLOAT_BYTES * sum(one.numel() for one in body.parameters())
    assert cost.parameters(wider) == sum(one.numel() for one in body.parameters())
    assert needed(wider) == weights + BACKWARD * BATCH * saved_bytes(body.eval(), EXAMPLE)


@pytest.mark.slow
def test_the_first_step_of_a_tail_is_that_of_its_start() -> None:
    edit = Edit(start=0.5, cap=1.0, controller="ric", horizon=3, penalty=0.4, adapter="dspa")
    tail = GrowingTail(separable(), edit, scratch=True)
    model = example_model(1)
    model = replace(model, blocks=(replace(model.blocks[0], in_shape=(2, 12, 12)),))
    plan = TrialPlan(model, example_task(), recipe=RecipePlan(batch_size=BATCH, optimiser="adam"))
    step = first_step(tail, plan)
    batch = BATCH * FLOAT_BYTES * 2 * 12 * 12
    state = 3 * FLOAT_BYTES * sum(one.numel() for one in tail.parameters())
    assert step.peak_bytes == state + BATCH * saved_bytes(tail, EXAMPLE) + batch
    assert 2 * step.peak_bytes < first_step(separable(), replace(plan, recipe=RecipePlan(batch_size=40))).peak_bytes
