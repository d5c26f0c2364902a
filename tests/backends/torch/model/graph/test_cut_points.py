"""Cut points and blocks of known architectures."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.model.graph.nodes import chain
from tuner.backends.torch.model.vision import torchvision

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
