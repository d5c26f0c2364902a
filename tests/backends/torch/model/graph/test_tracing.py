"""The steps of tracing, each on a small network that the step before cannot trace."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.model.graph.nodes import Chain, chain
from tuner.backends.torch.model.graph.tracing import RefusalError
from tuner.backends.torch.model.vision import torchvision

pytestmark = pytest.mark.slow


class Block(nn.Module):
    """Asks for a value: torch.fx cannot trace that."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(width, width), nn.Dropout(0.1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        if value.shape[1] != self.layer.in_features:
            raise ValueError("another width")
        result: torch.Tensor = value + self.drop(self.layer(value)).relu()
        return result


class InBlocks(nn.Module):
    """Its blocks refuse, itself not; it prepares its input before its first weight."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(4)))
        self.head = nn.Linear(width, 3)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.blocks(self.stem(value * 2 - 1)))
        return result


class Whole(InBlocks):
    """Refuses itself, and gives every block the same mask, as long as the batch."""

    def __init__(self, limit: int = 100) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        if value.shape[1] > self.limit:
            raise ValueError("too long")
        mask = torch.ones(value.shape[0], 1) * 0.5
        value = self.stem(value * 2 - 1)
        for block in self.blocks:
            value = block(value) * mask
        result: torch.Tensor = self.head(value.view(value.shape[0], -1))
        return result


class ByValue(InBlocks):
    """Goes another way for other values: nothing traces it."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        if value.sum() > 0:
            value = -value
        return super().forward(value)


def require_parts(found: Chain, model: nn.Module) -> None:
    edges = [found.split_position(cut) for cut in range(len(found.blocks) + 1)]
    value = sample = torch.rand(5, 4)
    with torch.no_grad():
        for begin, end in pairwise(edges):
            value = found.part(begin, end).eval()(value)
        assert torch.allclose(value, model(sample), atol=1e-6)


@pytest.mark.parametrize(
    ("build", "traced_by", "blocks"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), "torch.fx", 2),
        (InBlocks, "torch.fx, with Block as leaves", 6),
        (Whole, "torch.export", 6),
    ],
)
def test_each_step_finds_the_blocks(build: type[nn.Module], traced_by: str, blocks: int) -> None:
    model = build()
    found = chain(model, torch.rand(1, 4))
    assert found.traced_by == traced_by
    assert len(found.blocks) == blocks
    require_parts(found, model)


def test_modules_stay_modules_where_operators_were_traced() -> None:
    torch.manual_seed(0)
    model = Whole()
    found = chain(model, torch.rand(1, 4))
    called = [model.get_submodule(str(node.target)) for node in found.nodes if node.op == "call_module"]
    assert [type(module) for module in called].count(nn.Dropout) == 4
    tail = found.tail(len(found.blocks) - 2).train()
    assert not torch.equal(tail(torch.ones(5, 6)), tail(torch.ones(5, 6)))  # its dropout is active
    assert dict(tail.named_parameters()).keys() == {
        f"{name}.{kind}" for name in ("blocks.3.layer", "head") for kind in ("weight", "bias")
    }
    assert tail.get_parameter("head.weight") is model.head.weight


def test_what_refuses_is_named_with_its_line() -> None:
    with pytest.raises(
        RefusalError,
        match=r"^torch\.fx: TraceError: .* \(the model, a ByValue, test_tracing\.py, line \d+\); torch\.export: ",
    ):
        chain(ByValue(), torch.rand(1, 4))


def test_what_is_kept_in_evaluation_mode_is_no_placeholder_after_tracing() -> None:
    class Keeps(nn.Module):
        """Keeps what it computes of its weights, until it trains."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.scale, self.kept = nn.Linear(4, 6), nn.Parameter(torch.ones(6)), list[torch.Tensor]()
            self.last = nn.Linear(6, 3)

        def train(self, mode: bool = True) -> "Keeps":
            if mode:
                self.kept = []
            return super().train(mode)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            if not self.kept:
                self.kept.append(self.scale * 2)
            result: torch.Tensor = self.last(self.first(value) * self.kept[0])
            return result

    model = Keeps().eval()
    model(torch.rand(1, 4))
    found = chain(model, torch.rand(1, 4))
    assert "scale" in dict(found.module.named_parameters())
    require_parts(found, model)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "cuts", "blocks"),
    [
        ("mobilenet_v2", 74, 20),
        ("resnet18", 24, None),
        ("efficientnet_b0", 80, None),
        ("densenet121", 26, None),
        ("vit_b_16", 33, 14),
        ("vgg11", None, 11),
    ],
)
def test_cut_points_and_blocks_are_those_of_the_architecture(name: str, cuts: int | None, blocks: int | None) -> None:
    model = getattr(torchvision().models, name)()
    architecture = chain(model, torch.zeros(1, 3, 224, 224))
    if cuts is not None:
        assert len(architecture.cuts) == cuts
    if blocks is not None:
        assert len(architecture.blocks) == blocks
    if name == "mobilenet_v2":
        names = [".".join(block.name.split(".")[:2]) for block in architecture.blocks]
        assert names == [*(f"features.{at}" for at in range(19)), "classifier.1"]
        papers = [architecture.blocks[-count - 1].name for count in (3, 6, 9)]  # their last 1, 4 and 7 cut after these
        assert papers == ["features.16", "features.13", "features.10"]


class Normed(nn.Module):
    def __init__(self, *, by_function: bool) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 320, 3), nn.GroupNorm(1, 320), nn.Linear(320, 4)
        self.by_function = by_function

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.first(value)
        norm = self.norm
        value = functional.group_norm(value, 1, norm.weight, norm.bias) if self.by_function else norm(value)
        logits: torch.Tensor = self.head(value.mean((2, 3)))
        return logits


@pytest.mark.parametrize("by_function", [True, False])
def test_a_group_norm_may_be_the_first_to_train(by_function: bool) -> None:
    """Without the guard, PyTorch 2.13 ends this process."""
    found = chain(Normed(by_function=by_function).eval(), torch.rand(1, 3, 6, 6))
    tail = channels_last(found.part(found.cuts[1], found.blocks[-1].end)).train()
    tail(spatial(torch.rand(8, 320, 4, 4))).sum().backward()
    assert all(value.grad is not None for value in tail.parameters())
