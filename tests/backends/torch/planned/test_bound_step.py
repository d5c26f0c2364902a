"""The planned executor: same losses as the eager loop, updates in place, memory as planned."""

import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx, nn

from benchmarks.models.memory import plan
from tests.backends.torch.tails import (
    ALL_TAILS,
    BATCH,
    TAILS,
    Eager,
    Planned,
    batch_of,
    first_values,
    part_of,
    relative,
    traced,
)
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.planned.fused import fused
from tuner.backends.torch.planned.nodes import readers
from tuner.backends.torch.planned.program import program
from tuner.backends.torch.planned.schedule import Update, schedule
from tuner.backends.torch.step.optimiser import STATES
from tuner.backends.torch.step.optimiser import optimiser as optimiser_of
from tuner.backends.torch.step.traced import Step
from tuner.backends.torch.task_loss import CROSS_ENTROPY, StepLoss, torch_loss
from tuner.plan.parts import Optimiser, RecipePlan
from tuner.planner.memory.placement import by_size, max_live
from tuner.targets import MultiLabel, Regression

pytestmark = pytest.mark.slow
WEIGHT = tuple(float(index < BATCH - 3) for index in range(BATCH))
STEPS: Mapping[Optimiser, int] = {"sgd": 10, "adam": 5, "adamw": 5}
ROOT = Path(__file__).parents[4]


@cache
def traced_once(name: str, optimiser: Optimiser) -> Step:
    """Trace a tail for tests that do not change the step."""
    return traced(ALL_TAILS[name](), RecipePlan(optimiser=optimiser, weight_decay=0.01))


def arms(
    name: str, recipe: RecipePlan, loss: StepLoss = CROSS_ENTROPY, *, padded: bool = True
) -> tuple[Step, Planned, Eager]:
    torch.manual_seed(0)
    tail = ALL_TAILS[name]()
    eager = Eager(copy.deepcopy(tail.module), recipe)
    alike = RecipePlan(optimiser=recipe.optimiser, weight_decay=0.01)
    usual = padded and loss == CROSS_ENTROPY and recipe == alike
    step = traced_once(name, recipe.optimiser) if usual else traced(tail, recipe, loss, padded=padded)
    return step, Planned(step, eager_layout(tail.module)), eager


def eager_layout(tail: nn.Module) -> nn.Module:
    for value in tail.parameters():
        value.data = spatial(value.data)
    return tail


@pytest.mark.parametrize(
    ("name", "optimiser", "freeze_bn"),
    [
        *((name, optimiser, True) for name in ALL_TAILS for optimiser in STEPS),
        *((name, optimiser, False) for name, optimiser in zip(ALL_TAILS, cycle(STEPS), strict=False)),
    ],
)  # all pairs, not all triples: an update is of a gradient, whatever the norms do
def test_losses_are_those_of_the_eager_loop(name: str, optimiser: Optimiser, freeze_bn: bool) -> None:
    recipe = RecipePlan(optimiser=optimiser, weight_decay=0.01, freeze_bn=freeze_bn)
    step, planned, eager = arms(name, recipe, padded=freeze_bn)  # padded norms are more exact than PyTorch's own
    batch = batch_of(step, np.random.default_rng(0))
    rates = np.linspace(0.01, 0.001, STEPS[optimiser]) / (1 if optimiser == "sgd" else 10)
    ours = [planned.step(batch, rate) for rate in rates]
    theirs = [eager.step(batch, rate) for rate in rates]
    allowed = 1e-4
    if not freeze_bn and relative(ours, theirs) >= allowed:  # no further off than the eager loop is from itself
        torch.manual_seed(0)
        again = Eager(ALL_TAILS[name]().module, recipe)
        nudged = {**batch, "input": np.multiply(batch["input"], 1 + 1e-6, dtype=np.float32)}
        allowed = 3 * relative([again.step(nudged, rate) for rate in rates], theirs)
    assert relative(ours, theirs) < allowed
    assert len(set(theirs)) == len(rates)


def test_norms_that_train_on_padded_batches_run_as_traced() -> None:
    torch.manual_seed(0)
    tail = TAILS["MobileNetV2 after f16"]()
    step = traced(tail, RecipePlan(optimiser="sgd", freeze_bn=False))
    module = eager_layout(tail.module)
    values, planned = first_values(step, module), Planned(step, module)
    batch = batch_of(step, np.random.default_rng(0))
    fixed = {"sample_weight": torch.tensor(WEIGHT), "learning_rate": torch.tensor(0.01)}
    for _ in range(3):
        given = values | {name: torch.from_numpy(value) for name, value in batch.items()} | fixed
        found = step.graph(*[given[port.name] for port in step.inputs])
        outputs = {port.name: value for port, value in zip(step.outputs, found, strict=True)}
        values |= {old: outputs[new] for new, old in step.updates.items()}
        assert relative([planned.step(batch, 0.01, WEIGHT)], [float(outputs["loss"])]) < 1e-5


def test_a_padded_batch_trains_on_its_real_samples() -> None:
    step, planned, eager = arms("LeNet", RecipePlan(optimiser="adam"), torch_loss(MultiLabel()))
    batch = batch_of(step, np.random.default_rng(0))
    ours = planned.step(batch, 1e-3, tuple(float(index < 3) for index in range(BATCH)))
    assert relative([ours], [eager.step(part_of(batch, 3), 1e-3)]) < 1e-6


def test_weights_and_statistics_are_overwritten_where_they_lie() -> None:
    torch.manual_seed(0)
    tail = TAILS["ResNet-18, last 2"]()
    module = eager_layout(tail.module)
    eager = Eager(copy.deepcopy(module), RecipePlan(optimiser="sgd", freeze_bn=False))
    step = traced(tail, RecipePlan(optimiser="sgd", freeze_bn=False))
    before = {name: (value.data_ptr(), value.clone()) for name, value in module.state_dict().items()}
    batch = batch_of(step, np.random.default_rng(0))
    Planned(step, module).step(batch, 0.01)
    eager.step(batch, 0.01)
    theirs = eager.tail.state_dict()
    for name, value in module.state_dict().items():
        place, old = before[name]
        assert value.data_ptr() == place
        assert not torch.equal(value, old), name
        torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", TAILS)
def test_updates_run_after_every_reader_of_the_old_value(name: str) -> None:
    plan = schedule(traced_once(name, "adamw"))
    place = {item: index for index, item in enumerate(plan.items) if isinstance(item, fx.Node)}
    updates = [(index, item) for index, item in enumerate(plan.items) if isinstance(item, Update)]
    for index, item in updates:
        assert all(place[reader] < index for port in item.replaced for reader in readers(port) if reader in place)
    assert len(updates) == sum(kind == "parameter" for kind in plan.kinds.values())


@pytest.mark.parametrize("name", TAILS)
def test_gradients_are_gone_as_soon_as_their_weight_is_updated(name: str) -> None:
    tensors = program(traced_once(name, "adamw")).tensors
    gradients = [one for one in tensors if one.kind == "gradient"]
    assert max_live(gradients) <= 1.1 * max(one.nbytes for one in gradients)
    assert sum(one.nbytes for one in gradients) == sum(one.nbytes for one in tensors if one.kind == "state") / 2


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("name", TAILS)
def test_every_weight_is_updated_by_one_kernel(name: str, optimiser: Optimiser) -> None:
    step = traced_once(name, optimiser)
    weights = sum(port.kind == "parameter" for port in step.inputs)
    made = program(step)
    assert made.source.count(" optimiser_") == weights
    assert "update_0" not in made.source


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_a_gradient_in_another_layout_updates_the_right_elements(optimiser: Optimiser) -> None:
    recipe = RecipePlan(optimiser=optimiser, weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    weight, gradient = (torch.randn(4, 3, 2, 2, generator=generator) for _ in range(2))
    theirs = nn.Parameter(weight.clone())
    theirs.grad = gradient.clone()
    made = optimiser_of([theirs], recipe)
    made.param_groups[0]["lr"] = 0.01
    made.step()
    ours = spatial(weight.clone())
    states = [torch.zeros_like(ours) for _ in STATES[optimiser]]
    count = [] if optimiser == "sgd" else [torch.tensor(1.0)]
    fused(recipe)(ours, *states, gradient, torch.tensor(0.01), *count)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-7)


def test_a_group_that_is_no_optimisers_step_runs_in_pieces() -> None:
    tail = TAILS["linear head"]()
    recipe = RecipePlan(optimiser="sgd", momentum=0.0)
    step = traced(tail, recipe, torch_loss(Regression()))
    assert not any(port.kind == "state" for port in step.inputs)
    made = program(step)
    assert " optimiser_" not in made.source
    theirs = copy.deepcopy(tail.module)
    batch = batch_of(step, np.random.default_rng(0))
    Planned(step, tail.module, made).step(batch, 0.1)
    loss = nn.functional.mse_loss(theirs(torch.from_numpy(batch["input"])), torch.from_numpy(batch["label"]))
    weights = list(theirs.parameters())
    for ours, weight, gradient in zip(
        tail.module.parameters(), weights, torch.autograd.grad(loss, weights), strict=True
    ):
        torch.testing.assert_close(ours, weight - 0.1 * gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("freeze_bn", [True, False])
def test_computing_again_takes_less_memory_and_gives_the_same(freeze_bn: bool) -> None:
    recipe = RecipePlan(optimiser="sgd", freeze_bn=freeze_bn)
    torch.manual_seed(0)
    tail = TAILS["MobileNetV2 after f13"]()
    module = eager_layout(tail.module)
    step = traced(tail, recipe, padded=False)
    kept = Planned(step, copy.deepcopy(module), program(step, again=False))
    dropped = Planned(step, module)
    batch = batch_of(step, np.random.default_rng(0))
    losses = [(kept.step(batch, 0.01), dropped.step(batch, 0.01)) for _ in range(3)]
    assert relative([one for one, _ in losses], [two for _, two in losses]) < (1e-6 if freeze_bn else 1e-4)
    saved = [sum(one.nbytes for one in made.program.tensors if one.kind == "saved") for made in (dropped, kept)]
    assert saved[0] < 0.75 * saved[1]
    assert max_live(dropped.program.tensors) < max_live(kept.program.tensors)


@pytest.mark.parametrize("name", TAILS)
def test_tensors_can_be_placed(name: str) -> None:
    tensors = program(traced_once(name, "adamw")).tensors
    assert len({one.name for one in tensors}) == len(tensors)
    assert all(0 <= one.first <= one.last and one.nbytes >= 0 for one in tensors)
    assert {"weight", "state", "input", "gradient", "output"} <= {one.kind for one in tensors}
    assert max_live(tensors) <= by_size(tensors).pool_bytes <= sum(one.nbytes for one in tensors)


def test_a_fresh_process_stays_at_the_planned_peak() -> None:
    name = "MobileNetV2, after f13"
    command = [sys.executable, "-m", "benchmarks.models.memory", "--row", name, "--arm", "planned", "--steps", "3"]
    expected = plan(name, 0)["planned_bytes"]
    allowed, off = max(16e6, 0.1 * expected), []
    for _ in range(3):  # the libraries' own small blocks take from 9 to 17 MB, in the same code from process to process
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=300)
        off.append(abs(json.loads(done.stdout.splitlines()[-1])["peak_bytes"] - expected))
        if off[-1] <= allowed:
            break
    assert min(off) <= allowed, off
