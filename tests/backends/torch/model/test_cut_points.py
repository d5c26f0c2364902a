"""Cut points and blocks of known architectures."""

import pytest
import torch

from tuner.backends.torch.model.graph import chain
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
