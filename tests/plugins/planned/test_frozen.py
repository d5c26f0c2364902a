"""Weights that do not train: the planned step computes the same, and stores and computes less."""

import copy
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from tests.backends.torch.tails import BATCH, OUTPUTS, Eager, Planned, Tail, batch_of, relative, traced
from tuner.backends.torch.model.graph.layout import channels_last
from tuner.backends.torch.step.traced import Step
from tuner.plan.parts import RecipePlan
from tuner.planner.memory.placement import max_live
from tuner_lora.torch import LowRank
from tuner_planned.torch.bound_step import Program
from tuner_planned.torch.program import program
from tuner_planned.torch.schedule import Update, schedule
from tuner_sparse.torch import Partly

pytestmark = pytest.mark.slow
SHAPE = (6, 20, 20)
RECIPE = RecipePlan(optimiser="sgd", learning_rate=0.02)
ATEN = torch.ops.aten


class Net(nn.Module):
    """Convolutions whose gradients are computed in different ways: with a bias, in groups, strided, dilated."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            *(nn.Conv2d(6, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6()),
            *(nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.ReLU6()),
            *(nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.Conv2d(32, 32, 3, padding=2, dilation=2, bias=False), nn.BatchNorm2d(32, affine=False), nn.ReLU()),
            *(nn.Conv2d(32, 32, 3, stride=2, padding=1, groups=32, bias=False), nn.BatchNorm2d(32), nn.ReLU6()),
        )
        self.side = nn.Sequential(nn.Conv2d(32, 32, 1, bias=False), nn.BatchNorm2d(32))
        self.head = nn.Linear(32, OUTPUTS)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-0.2, 0.2)  # type: ignore[union-attr]  # a tensor
                module.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]  # the same

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.layers(value)
        value = value + self.side(value)
        logits: torch.Tensor = self.head(value.mean((2, 3)))
        return logits


def frozen_but(trains: Callable[[str, nn.Parameter], bool]) -> nn.Module:
    net = Net()
    for name, value in net.named_parameters():
        value.requires_grad_(name.startswith("head") or trains(name, value))
    return net


def biases() -> nn.Module:
    return frozen_but(lambda name, _: name.endswith("bias"))


def biases_and_scales() -> nn.Module:
    return frozen_but(lambda _, value: value.ndim == 1)


def some_layers() -> nn.Module:
    return frozen_but(lambda name, value: value.ndim > 1 and name.startswith(("layers.3", "layers.6", "side")))


def low_rank() -> nn.Module:
    net, generator = frozen_but(lambda _, __: False), torch.Generator().manual_seed(0)
    for module in list(net.modules()):
        if isinstance(module, nn.Conv2d) and module.groups == 1:
            register_parametrization(module, "weight", LowRank(module.weight, 2, 1.0, generator))
    return net


def partly() -> nn.Module:
    net = biases()
    for module in list(net.modules()):
        if isinstance(module, nn.Conv2d):
            channels = torch.arange(module.weight.shape[0 if module.groups > 1 else 1])[::3]
            register_parametrization(module, "weight", Partly(module.weight, int(module.groups == 1), channels))
    return net


class Added(nn.Module):
    """A weight plus what trains."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.delta = nn.Parameter(torch.zeros_like(weight))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.delta


class FromTheEnd(Partly):
    """Counts its dimension from the end, adds thrice, and computes its channels from others."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        places = self.channels.int().long()
        return weight.index_add(self._dimension - weight.ndim, places, self.delta, alpha=3)


def computed_shifts() -> nn.Module:
    """Norms whose shift is computed: later in the step than the convolution they are folded into."""
    net = frozen_but(lambda _, __: False)
    for module in list(net.modules()):
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            register_parametrization(module, "bias", Added(module.bias))
    return net


def counted_from_the_end() -> nn.Module:
    net = biases()
    for module in list(net.modules()):
        if isinstance(module, nn.Conv2d) and module.groups == 1:
            register_parametrization(module, "weight", FromTheEnd(module.weight, 1, torch.arange(4)))
    return net


MADE = (biases, biases_and_scales, some_layers, low_rank, partly, computed_shifts, counted_from_the_end)
NETS: Mapping[str, Callable[[], nn.Module]] = {one.__name__: one for one in (Net, *MADE)}


@cache
def step_of(name: str) -> Step:
    return traced(Tail(NETS[name](), SHAPE), RECIPE)


def stored(made: Program) -> int:
    return max_live([one for one in made.tensors if one.kind not in {"weight", "input"}])


def called(step: Step) -> list[object]:
    items = schedule(step).items
    return [node.target for item in items for node in (item.nodes if isinstance(item, Update) else [item])]


@pytest.mark.parametrize("name", [one.__name__ for one in MADE])
def test_a_step_with_frozen_weights_computes_what_the_eager_loop_does(name: str) -> None:
    net, step = channels_last(NETS[name]()), step_of(name)
    eager = Eager(copy.deepcopy(net), RECIPE)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    planned, batch = Planned(step, net), batch_of(step, np.random.default_rng(0))
    losses = [planned.step(batch, 0.02) for _ in range(12)]
    theirs = [eager.step(batch, 0.02) for _ in range(12)]
    assert relative(losses, theirs) < 1e-4
    assert losses[-1] < losses[0]
    trained = {key for key, value in net.named_parameters() if value.requires_grad}
    for key, value in net.state_dict().items():
        assert bool((value != before[key]).any()) == (key in trained), key


def test_where_biases_alone_train_norms_are_folded_and_no_weights_gradient_is_computed() -> None:
    plain, folded = called(step_of("Net")), called(step_of("biases"))
    assert plain.count(ATEN.native_batch_norm.default) > folded.count(ATEN.native_batch_norm.default) == 0
    assert folded.count(ATEN.native_batch_norm_backward.default) == 0
    assert folded.count(ATEN.convolution_backward.default) == 2  # the two with a stride: others are convolutions
    assert called(step_of("biases_and_scales")).count(ATEN.native_batch_norm.default) > 0
    nodes = step_of("biases").graph.graph.nodes
    wanted = [node.args[10] for node in nodes if node.target == ATEN.convolution_backward.default]
    assert len(wanted) >= 5
    assert not any(weight for _, weight, _ in wanted)


def test_what_does_not_train_is_not_stored() -> None:
    """Of a bounded activation, only whether a value is inside the bounds; of some channels, these alone."""
    made, whole = program(step_of("biases")), stored(program(step_of("Net")))
    maps = [one for one in made.tensors if one.kind == "saved" and one.nbytes >= BATCH * 24 * 400]
    assert maps
    assert max(one.nbytes for one in maps) == BATCH * 24 * 400  # a byte each
    assert stored(made) < 0.6 * whole
    assert ATEN.index_select.default in called(step_of("partly"))
    assert stored(program(step_of("partly"))) < 0.8 * whole


@pytest.mark.parametrize("dimension", [0, 1])
def test_a_transposed_convolution_trains_in_part(dimension: int) -> None:
    torch.manual_seed(0)
    first, rest = nn.ConvTranspose2d(6, 12, 3, stride=2, bias=False), (nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten())
    net: nn.Module = nn.Sequential(first, *rest, nn.LazyLinear(OUTPUTS)).eval()
    net(torch.zeros(1, *SHAPE))
    first.weight.requires_grad = False
    register_parametrization(first, "weight", Partly(first.weight, dimension, torch.arange(3)))
    net = channels_last(net)
    eager, step = Eager(copy.deepcopy(net), RECIPE), traced(Tail(net, SHAPE), RECIPE)
    planned, batch = Planned(step, net), batch_of(step, np.random.default_rng(0))
    losses = [planned.step(batch, 0.02) for _ in range(5)]
    assert relative(losses, [eager.step(batch, 0.02) for _ in range(5)]) < 1e-4
