"""PersEPhonEE's exits on ResNet-50 and MobileNetV2: where six sit, and what runs up to them (section 4)."""

from functools import cache

import numpy as np
import pytest

from tuner.backends.torch.model.open.load import load
from tuner.plan.heads import head_macs, head_parameters
from tuner.plan.info import ModelInfo
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Task
from tuner_exits import placed

pytestmark = pytest.mark.slow
EXITS, CHANNELS = 6, 128
#: After which blocks the exits sit, and the parameters and million multiply-accumulates up to there.
TAPS: dict[str, dict[str, tuple[int | None, float]]] = {
    "resnet50": {
        "layer1.1": (154_944, 567.6), "layer2.0": (604_736, 1158.5), "layer2.3": (1_444_928, 1813.6),
        "layer3.1": (4_074_560, 2404.4), "layer3.3": (6_308_928, 2841.2), "layer4.0": (14_582_848, 3650.4),
    },
    "mobilenet_v2": {
        "features.2": (None, 50.08), "features.4": (None, 91.28), "features.8": (None, 131.13),
        "features.11": (None, 164.48), "features.13": (None, 209.86), "features.16": (None, 256.42),
    },
}  # fmt: skip
NETWORKS = {"resnet50": (25_557_032, 4089.2), "mobilenet_v2": (3_504_872, 300.8)}


@cache
def described(name: str) -> ModelInfo:
    """Return a torchvision model's blocks at 224 pixels and 1000 classes; no weights are needed."""
    spec, rows = InputSpec(kind="arrays"), tuple(range(1000))
    samples = ArraySamples(np.zeros((2, 3, 224, 224), np.float32), np.zeros(2, np.int64), spec)
    model, domain = ModelSpec(f"torchvision.models:{name}"), Domain(samples, samples)
    return load(Task(name, model, spec, "single-label", domain, None, tuple(map(str, rows)), rows, (0,))).info


def reached(model: ModelInfo, block: int) -> tuple[int, float]:
    """Return parameters and million multiply-accumulates of the blocks before `block`."""
    before = model.blocks[:block]
    return sum(one.parameters for one in before), sum(one.flops for one in before) / 2e6


@pytest.mark.parametrize("name", TAPS)
def test_exits_sit_where_the_paper_has_them(name: str) -> None:
    model = described(name)
    taps = [one.block for one in placed(model, EXITS, CHANNELS)]
    assert [model.blocks[block - 1].name for block in taps] == list(TAPS[name])
    for block, (parameters, macs) in zip(taps, TAPS[name].values(), strict=True):
        found = reached(model, block)
        assert found[1] == pytest.approx(macs, abs=0.06)
        assert parameters in {None, found[0]}
    whole = reached(model, model.num_blocks)
    assert whole[0] == NETWORKS[name][0]
    assert whole[1] == pytest.approx(NETWORKS[name][1], abs=0.1)


def test_what_runs_up_to_an_exit_is_as_much_smaller_as_the_paper_says() -> None:
    """Of 14.6, 25.1 and 4.7 times fewer parameters, 25.1 (layer2.0) is given by no variant of MSDNet's classifier."""
    model = described("resnet50")
    block = [one.name for one in model.blocks].index("layer2.1") + 1
    shape, whole = model.blocks[block].in_shape, reached(model, model.num_blocks)
    parameters, macs = reached(model, block)
    head = head_parameters(shape, CHANNELS, 1000), head_macs(shape, CHANNELS, 1000) / 1e6
    assert (parameters, head[0]) == (884_800, 866_792)
    assert whole[0] / (parameters + head[0]) == pytest.approx(14.6, abs=0.05)
    assert whole[1] / (macs + head[1]) == pytest.approx(2.73, abs=0.01)
