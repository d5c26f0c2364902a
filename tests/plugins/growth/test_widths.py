"""Widths that may change: which layers are tied, what cannot grow, and what widths cost."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model.resize import install, resize
from tuner_growth.torch.cost import network_cost
from tuner_growth.torch.widths import WidthError, find, selected, traced


def lenet_1d(widths: tuple[int, int, int] = (20, 50, 500)) -> nn.Module:
    first, second, third = widths
    return nn.Sequential(
        nn.Conv1d(8, first, 14), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(first, second, 14), nn.ReLU(), nn.MaxPool1d(2),
        nn.Flatten(), nn.Linear(15 * second, third), nn.ReLU(), nn.Linear(third, 6),
    )  # fmt: skip


def mobilenet_1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(8, 32, 12, 2, bias=False), nn.ReLU(),
        nn.Conv1d(32, 32, 12, groups=32, bias=False), nn.ReLU(), nn.Conv1d(32, 64, 1, bias=False), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 6),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, inputs: int = 3, stem: bool = True) -> None:
        super().__init__()
        width = 16 if stem else inputs
        self.stem = nn.Conv2d(inputs, width, 3, padding=1) if stem else nn.Identity()
        self.a, self.na = nn.Conv2d(width, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24)
        self.b, self.nb = nn.Conv2d(24, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.nb(self.b(functional.relu(self.na(self.a(x)))))
        outputs: torch.Tensor = self.fc(torch.flatten(functional.adaptive_avg_pool2d(functional.relu(x + y), 1), 1))
        return outputs


def test_a_chain_grows_everywhere_but_at_its_ends() -> None:
    found = find(traced(lenet_1d()))
    assert [(one.name, one.size, one.consumers) for one in found.growable] == [
        ("0", 20, ("3",)),
        ("3", 50, ("7",)),
        ("7", 500, ("9",)),
    ]
    assert found.fixed == (("9", "it is the model's output"),)


def test_a_depthwise_layer_goes_along() -> None:
    body = traced(mobilenet_1d())
    found = find(body)
    assert [(one.name, one.depthwise, one.consumers) for one in found.growable] == [
        ("0", ("2",), ("4",)),
        ("4", (), ("8",)),
    ]
    install(body, selected(body, found.growable[0], [1, 3, 5]))
    depthwise = body.get_submodule("2")
    assert isinstance(depthwise, nn.Conv1d)
    assert (depthwise.groups, depthwise.in_channels, depthwise.out_channels) == (3, 3, 3)
    assert body(torch.zeros(1, 8, 100)).shape == (1, 6)


def test_residual_ties_are_one_group_with_every_layer_that_gives_it() -> None:
    found = find(traced(Residual()))
    assert [(one.producers, one.norms, one.consumers) for one in found.growable] == [
        (("stem", "b"), ("nb",), ("a", "fc")),
        (("a",), ("na",), ("b",)),
    ]


def test_a_stream_tied_to_the_input_keeps_its_width_and_hidden_ones_grow() -> None:
    found = find(traced(Residual(8, stem=False)))
    assert [one.name for one in found.growable] == ["a"]
    assert dict(found.fixed)["b"] == "it has the width of the tail's input"


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(4, 8, 3, groups=2)
        self.first, self.second = nn.Conv2d(8, 6, 1), nn.Conv2d(6, 6, 1)
        self.third, self.norm, self.fc = nn.Conv2d(6, 9, 1), nn.GroupNorm(3, 9), nn.Linear(36, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.grouped(x))
        x = self.norm(self.third(self.second(self.second(x))))
        outputs: torch.Tensor = self.fc(x.view(x.size(0), -1))
        return outputs


def test_what_cannot_grow_is_reported_with_the_reason() -> None:
    found = find(traced(Odd()))
    assert not found.growable
    reasons = dict(found.fixed)
    assert reasons["grouped"] == "grouped is a grouped convolution"
    assert reasons["first"] == "second is used more than once"
    assert reasons["third"] == "norm (GroupNorm) has a width of its own"


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_a_model_that_cannot_be_traced_is_reported_in_one_line() -> None:
    with pytest.raises(WidthError, match=r"growth needs a model that torch\.fx can trace, but TraceError") as raised:
        traced(Branching())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "shape"), [(Residual(), (2, 3, 8, 8)), (lenet_1d(), (2, 8, 100)), (mobilenet_1d(), (2, 8, 100))]
)
def test_keeping_some_channels_is_what_zeroing_the_others_does(model: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    body, value = traced(model.eval()), torch.randn(shape)
    for width in find(body).growable:
        keep = list(range(0, width.size, 2))
        drop = [index for index in range(width.size) if index not in keep]
        with torch.no_grad():
            for name in width.consumers:
                weight = body.get_submodule(name).get_parameter("weight")
                weight.reshape(len(weight), width.size, -1)[:, drop] = 0
        expected = body(value)
        install(body, selected(body, width, keep))
        assert torch.allclose(body(value), expected, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_an_optimisers_state_keeps_its_leading_block(kind: type[torch.optim.Optimizer]) -> None:
    body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    arguments: dict[str, Any] = {"lr": 0.1, "momentum": 0.9} if kind is torch.optim.SGD else {"lr": 0.1, "fused": True}
    optimiser = kind(body.parameters(), **arguments)
    body(torch.randn(5, 3)).square().sum().backward()
    optimiser.step()
    old = body.get_submodule("0").get_parameter("weight")
    before = {name: value.clone() for name, value in optimiser.state[old].items()}
    install(body, {"0.weight": torch.cat([old.detach(), torch.ones(2, 3)]), "0.bias": torch.zeros(6)}, optimiser)
    install(body, {"2.weight": torch.zeros(2, 6)}, optimiser)
    new = body.get_submodule("0").get_parameter("weight")
    assert all(one in set(body.parameters()) for group in optimiser.param_groups for one in group["params"])
    for name, value in optimiser.state[new].items():
        if value.ndim:
            assert torch.equal(value[:4], before[name])
            assert not value[4:].any()
        else:
            assert value == before[name]
    body(torch.randn(5, 3)).square().sum().backward()
    optimiser.step()


def test_a_network_takes_the_shapes_of_a_state() -> None:
    wide, narrow = lenet_1d(), lenet_1d((2, 5, 10))
    resize(wide, narrow.state_dict())
    wide.load_state_dict(narrow.state_dict())
    value = torch.randn(3, 8, 100)
    assert torch.equal(wide(value), narrow(value))


@pytest.mark.parametrize(
    ("widths", "count"), [((20, 50, 500), 394816), ((10, 15, 28), 9747), ((2, 5, 10), 1197), ((17, 38, 52), 41013)]
)
def test_costs_count_the_papers_parameters(widths: tuple[int, ...], count: int) -> None:
    body = traced(lenet_1d())
    cost = network_cost(body, find(body), torch.zeros(1, 8, 100))
    assert cost.parameters(widths) == count
    assert sum(one.numel() for one in lenet_1d((20, 50, 500)).parameters()) == cost.parameters((20, 50, 500))
    assert [layer.positions for layer in cost.layers] == [87, 30, 1, 1]


def test_costs_of_depthwise_layers_and_norms_are_counted() -> None:
    for model, example in ((mobilenet_1d(), torch.zeros(1, 8, 100)), (Residual(), torch.zeros(1, 3, 8, 8))):
        body = traced(model)
        found = find(body)
        cost = network_cost(body, found, example)
        assert cost.parameters([one.size for one in found.growable]) == sum(one.numel() for one in model.parameters())
