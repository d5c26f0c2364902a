"""The cache sizes that Cache-and-Reuse prints (tables 2 and 4) follow from the models' own shapes; what the store adds.

The paper's figures are MiB, for CIFAR-100's 50,000 training images at 224 pixels; EfficientFormerV2-S0, with two of its
17 figures, is not among torchvision's models. It rounds up, and prints 1200 for ResNet-18 at 4 bits. Our records of 1
bit have scales of their own in addition, which the paper's do not have.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tuner.backends.torch.model.vision import torchvision
from tuner.store.codec import Codec, has_own_scales
from tuner.store.files.header import StoreKey
from tuner.store.files.records import RecordFile

MIB, PIXELS = 50_000 / 2**20, 224
#: Setting, torchvision's model and the module whose output is stored, and the paper's MiB by bits.
PRINTED: tuple[tuple[str, str, str, dict[int, int]], ...] = (
    ("MobileNetV2 last 1, after f16", "mobilenet_v2", "features.16", {4: 188, 2: 95}),
    ("MobileNetV2 last 4, after f13", "mobilenet_v2", "features.13", {32: 3589, 8: 898, 4: 450, 2: 226, 1: 113}),
    ("MobileNetV2 last 7, after f10", "mobilenet_v2", "features.10", {4: 300, 2: 151}),
    ("EfficientNet-B0, row 1", "efficientnet_b0", "features.6", {4: 226, 2: 113}),
    ("EfficientNet-B0 last 5", "efficientnet_b0", "features.5", {4: 525, 2: 263}),
    ("ResNet-18 last 2", "resnet18", "layer3", {4: 1200, 2: 599}),
)


def shape_after(model: str, module: str) -> tuple[int, ...]:
    """Return the shape of one sample's output of a module, of a model without weights."""
    shapes: list[tuple[int, ...]] = []
    with torch.device("meta"):
        network = getattr(torchvision().models, model)().eval()
        network.get_submodule(module).register_forward_hook(
            lambda _, __, output: shapes.append(tuple(output.shape[1:]))
        )
        network(torch.zeros(1, 3, PIXELS, PIXELS))
    return shapes[0]


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "model", "module", "printed"), PRINTED)
def test_the_papers_sizes_are_those_of_the_stored_maps(
    setting: str, model: str, module: str, printed: dict[int, int], tmp_path: Path
) -> None:
    shape = shape_after(model, module)
    for bits, paper in printed.items():
        low, high = (np.zeros(shape[0], np.float32), np.ones(shape[0], np.float32)) if bits <= 8 else (None, None)
        codec = Codec(bits, shape, low, high, has_own_scales(bits, shape))
        own, arithmetic = MIB * codec.scale_bytes, MIB * math.prod(shape) * bits / 8
        assert MIB * codec.record_bytes - own == pytest.approx(arithmetic)
        assert 0 <= paper - arithmetic <= (4.0 if paper == 1200 else 1.8)
        key = StoreKey("prefix", "input", "torch-fp32", setting, bits, shape, codec.scales, codec.per_sample)
        path = tmp_path / str(bits)
        with RecordFile.create_or_open(path, key, low, high) as file:
            file.append(["0" * 32, "1" * 32], codec.encode(np.zeros((2, *shape), np.float32)))
            header = sum((path / name).stat().st_size for name in ("header", "cost") if (path / name).exists())
            added = MIB * file.nbytes / 2 + header / 2**20 - arithmetic - own
        assert 0 <= added <= 1.8  # index, checksums, header, shared scales
