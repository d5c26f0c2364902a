"""The traced step against the eager loop, both run by PyTorch."""

import copy
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.backends.torch.tails import (
    BATCH,
    OUTPUTS,
    PAIRS,
    Arrays,
    Eager,
    Tail,
    batch_of,
    first_values,
    part_of,
    relative,
    step_of,
    tail_of,
    traced,
)
from tuner.backends.torch.step.substitutes import Feed, WeightedNorm
from tuner.backends.torch.step.traced import Step, StepError
from tuner.backends.torch.task_loss import CROSS_ENTROPY, StepLoss, torch_loss
from tuner.plan.parts import Optimiser, RecipePlan
from tuner.targets import LossSettings, MultiLabel, Regression, SingleLabel

pytestmark = pytest.mark.slow
NORMS_TRAIN = RecipePlan(optimiser="sgd", freeze_bn=False)


class Graph:
    """Runs a step's graph, its outputs becoming the next step's inputs."""

    def __init__(self, step: Step, tail: nn.Module) -> None:
        self._step, self._count = step, 0
        self.values = first_values(step, tail)

    def step(self, batch: Arrays, rate: float, weight: tuple[float, ...] = (1.0,) * BATCH) -> float:
        self._count += 1
        given = {name: torch.from_numpy(value) for name, value in batch.items()}
        given |= {
            "sample_weight": torch.tensor(weight),
            "learning_rate": torch.tensor(rate),
            "step_count": torch.tensor(float(self._count)),
        }
        found = self._step.graph(*[(self.values | given)[port.name] for port in self._step.inputs])
        outputs = dict(zip([port.name for port in self._step.outputs], found, strict=True))
        self.values |= {old: outputs[new] for new, old in self._step.updates.items()}
        return float(outputs["loss"])


def difference(values: Mapping[str, torch.Tensor], tail: nn.Module) -> float:
    state = tail.state_dict()
    return max(float((values[name] - value).abs().max()) for name, value in state.items() if name in values)


def arms(
    name: str,
    recipe: RecipePlan,
    loss: StepLoss = CROSS_ENTROPY,
    criterion: nn.Module | None = None,
    *,
    padded: bool = True,
) -> tuple[Step, Graph, Eager]:
    step, tail = step_of(name, recipe, loss, padded=padded), tail_of(name).module
    return step, Graph(step, tail), Eager(tail, recipe, criterion)


@pytest.mark.parametrize(("name", "optimiser"), PAIRS)
def test_losses_are_those_of_the_eager_loop(name: str, optimiser: Optimiser) -> None:
    step, graph, eager = arms(name, RecipePlan(optimiser=optimiser, weight_decay=0.01))
    batch = batch_of(step, np.random.default_rng(0))
    rates = np.linspace(0.01, 0.001, 5) / (1 if optimiser == "sgd" else 10)
    losses = [(graph.step(batch, rate), eager.step(batch, rate)) for rate in rates]
    assert relative([one for one, _ in losses], [two for _, two in losses]) < 1e-4
    assert len({two for _, two in losses}) == len(rates)


def test_norms_that_train_leave_out_samples_of_weight_zero() -> None:
    step, graph, eager = arms("ResNet-18, last 2", NORMS_TRAIN)
    generator = np.random.default_rng(0)
    for real in (BATCH, 5, 3):
        batch = batch_of(step, generator)
        ours = graph.step(batch, 0.01, tuple(float(index < real) for index in range(BATCH)))
        assert relative([ours], [eager.step(part_of(batch, real), 0.01)]) < 1e-4
    assert difference(graph.values, eager.tail) < 1e-3


def test_norms_of_whole_batches_are_torchs_own() -> None:
    step, graph, eager = arms("ResNet-18, last 2", NORMS_TRAIN, padded=False)
    batch = batch_of(step, np.random.default_rng(0))
    assert relative([graph.step(batch, 0.01)], [eager.step(batch, 0.01)]) < 1e-5
    assert difference(graph.values, eager.tail) < 1e-4


@pytest.mark.parametrize("shape", [(8, 64, 1, 1), (8, 16, 5, 5), (32, 96, 10, 10)])
def test_padded_norms_are_at_least_as_exact_as_torchs_own(shape: tuple[int, ...]) -> None:
    """Channels last, PyTorch sums a map's values one by one in float32: over 3,200 of them it is the less exact one."""
    exact = normed(nn.BatchNorm2d(shape[1]).double(), shape, weighted=False)
    for weighted, plain, true in zip(
        normed(nn.BatchNorm2d(shape[1]), shape, weighted=True),
        normed(nn.BatchNorm2d(shape[1]), shape, weighted=False),
        exact,
        strict=True,
    ):
        size = float(true.abs().max())
        ours, theirs = (float((one - true).abs().max()) / size for one in (weighted, plain))
        assert ours < max(1.5 * theirs, 2e-6)
        assert ours < 1e-4


def normed(norm: nn.BatchNorm2d, shape: tuple[int, ...], *, weighted: bool) -> list[torch.Tensor]:
    """Return a training norm's result, its gradients and its statistics, in double precision."""
    generator = torch.Generator().manual_seed(0)
    dtype = norm.weight.dtype
    value = 3 * torch.randn(shape, generator=generator).double() + 5 * torch.randn(shape[1], 1, 1, generator=generator)
    back = torch.randn(shape, generator=generator)
    value = value.to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
    module = WeightedNorm(norm, Feed(weight=torch.ones(shape[0], dtype=dtype))) if weighted else norm
    result = module(value)
    result.backward(back.to(dtype))
    found = (result, value.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)
    return [one.detach().double() for one in found if one is not None]


def test_padded_norms_drift_no_further_from_exact_training_than_torchs_own() -> None:
    name = "MobileNetV2 after f16"
    step, graph, eager = arms(name, NORMS_TRAIN)
    exact = Eager(tail_of(name).module.double(), NORMS_TRAIN)
    batch = batch_of(step, np.random.default_rng(0))
    double = {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in batch.items()}
    rates = np.linspace(0.01, 0.001, 20)
    theirs = [eager.step(batch, rate) for rate in rates]
    true = [exact.step(double, rate) for rate in rates]
    ours = [graph.step(batch, rate) for rate in rates]
    assert relative(ours, true) < max(2 * relative(theirs, true), 1e-4)


LOSSES: Mapping[str, tuple[StepLoss, nn.Module | None]] = {
    "single-label": (CROSS_ENTROPY, None),
    "multi-label": (torch_loss(MultiLabel()), None),
    "Huber": (torch_loss(Regression(LossSettings(delta=0.3))), nn.HuberLoss(delta=0.3)),
    "smoothed": (torch_loss(SingleLabel(LossSettings(label_smoothing=0.2))), nn.CrossEntropyLoss(label_smoothing=0.2)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_padding_changes_neither_loss_nor_weights(name: str) -> None:
    loss, criterion = LOSSES[name]
    step, graph, eager = arms("LeNet", RecipePlan(optimiser="adam", weight_decay=0.01), loss, criterion)
    batch = batch_of(step, np.random.default_rng(0))
    ours = graph.step(batch, 1e-3, tuple(float(index < 3) for index in range(BATCH)))
    assert relative([ours], [eager.step(part_of(batch, 3), 1e-3)]) < 1e-6
    assert difference(graph.values, eager.tail) < 1e-5


def test_tracing_changes_nothing_of_the_tail_and_names_every_port_once() -> None:
    tail = tail_of("MobileNetV2 after f16")
    before = copy.deepcopy(tail.module.state_dict())
    step = traced(tail, RecipePlan(optimiser="adam", freeze_bn=False))
    after = tail.module.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert not any(value.grad is not None for value in tail.module.parameters())
    inputs = {port.name: port for port in step.inputs}
    outputs = {port.name: port for port in step.outputs}
    assert len(inputs) == len(step.inputs)
    assert step.outputs[0].name == "loss"
    assert set(step.updates) == set(outputs) - {"loss"}
    assert all(outputs[new].shape == inputs[old].shape for new, old in step.updates.items())
    assert {port.kind for port in step.inputs} == {
        "input", "label", "sample_weight", "learning_rate", "step_count", "noise", "parameter", "buffer", "state"
    }  # fmt: skip


class Draws(nn.Module):
    """Dropouts of every kind, of the probabilities 0.1 to 0.5."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = functional.dropout(value, 0.1, self.training)
        value = functional.scaled_dot_product_attention(value, value, value, dropout_p=0.2)
        value = value * value.new_empty(len(value), 1, 1).bernoulli_(0.7).div_(0.7)
        value = value * torch.floor(0.6 + torch.rand((len(value), 1, 1)))
        return nn.Dropout1d(0.5)(value).flatten(1)  # type: ignore[no-any-return]  # a module's call is untyped


@pytest.mark.parametrize(
    ("edge", "kept"), [(0.0, 0.0), (0.099, 0.0), (0.201, 0.0), (0.301, 0.0), (0.401, 0.0), (0.501, 1.0), (0.99, 1.0)]
)
def test_whatever_drops_out_reads_noise(edge: float, kept: float) -> None:
    tail = Tail(nn.Sequential(Draws(), nn.Linear(12, OUTPUTS)), (3, 4))
    step = traced(tail, RecipePlan(optimiser="sgd"))
    noises = [port for port in step.inputs if port.kind == "noise"]
    assert [port.shape for port in noises] == [(8, 3, 4), (8, 3, 3), (8, 1, 1), (8, 1, 1), (8, 3, 1)]
    batch = batch_of(step, np.random.default_rng(0))
    batch |= {port.name: np.full(port.shape, edge, np.float32) for port in noises}
    linear = tail.module[1]  # type: ignore[index]  # it is sequential
    value = torch.from_numpy(batch["input"])
    if kept:
        value = functional.scaled_dot_product_attention(value / 0.9, value / 0.9, value / 0.9) / 0.8 / 0.7 / 0.5
    logits = linear(value.flatten(1) * kept)
    expected = functional.cross_entropy(logits, torch.from_numpy(batch["label"]))
    assert relative([Graph(step, tail.module).step(batch, 0.0)], [float(expected.detach())]) < 1e-5


class Tied(nn.Module):
    """One layer by two names, as a head in closed form has it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, OUTPUTS))
        self.layer = self.inner[0]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(value)
        return logits


def test_a_layer_by_two_names_trains() -> None:
    step = traced(Tail(Tied(), (4,)), RecipePlan(optimiser="sgd"))
    assert [port.name for port in step.inputs if port.kind == "parameter"] == ["inner.0.weight", "inner.0.bias"]


class DrawsNoise(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + torch.rand_like(value)


class LooksAtValues(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value if float(value.sum()) > 0 else -value


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (DrawsNoise(), "may draw random numbers for dropouts only, but this one does in aten.rand_like"),
        (LooksAtValues(), "this tail cannot be traced .*: only PyTorch's eager loop .* can train it"),
    ],
)
def test_what_cannot_be_traced_is_refused(module: nn.Module, message: str) -> None:
    tail = Tail(nn.Sequential(module, nn.Linear(4, OUTPUTS)), (4,))
    with pytest.raises(StepError, match=message):
        traced(tail, RecipePlan())
