"""The networks of MDLdroidLite have the parameters and FLOPs that its Tables 4 and 5 print.

The papers print thousands and millions to two or three digits, some rounded and some cut off: 3,759 parameters appear
as 3.75 K and as 3.76 K. Four entries of Table 2 and one of Table 1 cannot give the printed counts and are corrected:
LeNet's kernels are 14 wide on every set, MHEALTH has 11 classes, FinDroidHR 6 channels, and MobileNet's third depthwise
convolution stride 2. FLOPs are 2 × (multiply-accumulates + bias adds) + ReLU outputs + pool inputs.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tuner.errors import TaskError
from tuner.models.counts import flops, parameters
from tuner.models.lenet import lenet_1d, lenet_2d
from tuner_growth.torch.mobilenet import mobilenet_1d
from tuner_growth.torch.vgg import vgg_11

FULL_FLOPS = (2_000_232, 2_937_112, 2_736_042, 3_379_792, 4_646_400, 736_236, 1_135_020, 1_257_206, 1_414_060)
PARAMETERS = (
    *(394816, 177521, 14593, 9747, 41013),
    *(570096, 153257, 15379, 8889, 24722),
    *(401521, 84489, 9682, 6832, 21497),
    *(694256, 175855, 17564, 10636, 18858),
    *(431080, 219714, 38056, 20963, 35805),
    *(50310, 8386, 7558, 3759, 5630),
    *(51718, 15506, 7370, 3335, 6210),
    *(57355, 25615, 13653, 6783, 13151),
    *(50374, 33214, 7158, 3759, 6458),
)
#: Of MNIST's ten FLOP counts only these two disagree, with any rule that agrees with the other 43: by data and method.
DIFFERENT = [("LeNet MNIST", 0), ("LeNet MNIST", 3)]


def _lenet(channels: int, time: int, outputs: int) -> Callable[[Any], nn.Module]:
    return lambda widths: lenet_1d(channels, time, outputs, widths)


def _mobilenet(channels: int, time: int, kernel: int, outputs: int) -> Callable[[Any], nn.Module]:
    return lambda widths: mobilenet_1d(channels, time, kernel, outputs, widths)


#: By network and data set: the shape of a sample, the network, and of each of five methods the widths, and the
#: thousands of parameters and millions of FLOPs that are printed.
TABLES = (
    (
        "LeNet sEMG", (8, 100), _lenet(8, 100, 6),
        [(20, 50, 500), (16, 42, 261), (12, 24, 25), (10, 15, 28), (17, 38, 52)],
        [("394.82", "2.0"), ("177.52", "1.22"), ("14.59", "0.5"), ("9.7", "0.34"), ("41.01", "0.94")],
    ),
    (
        "LeNet HAR", (9, 128), _lenet(9, 128, 6),
        [(20, 50, 500), (18, 45, 140), (10, 16, 33), (5, 13, 25), (12, 18, 50)],
        [("570", "2.9"), ("153", "1.8"), ("15.38", "0.52"), ("8.89", "0.24"), ("24.72", "0.66")],
    ),
    (
        "LeNet MHEALTH", (23, 100), _lenet(23, 100, 11),
        [(20, 50, 500), (18, 40, 112), (7, 15, 25), (5, 11, 25), (8, 22, 48)],
        [("401.52", "2.74"), ("84.49", "1.76"), ("9.68", "0.5"), ("6.83", "0.34"), ("21.5", "0.63")],
    ),
    (
        "LeNet FinDroidHR", (6, 150), _lenet(6, 150, 6),
        [(20, 50, 500), (15, 46, 132), (5, 15, 39), (5, 11, 31), (12, 18, 30)],
        [("694.26", "3.38"), ("175.85", "1.76"), ("17.56", "0.27"), ("10.63", "0.22"), ("18.86", "0.65")],
    ),
    (
        "LeNet MNIST", (1, 28, 28), lambda widths: lenet_2d(10, widths),
        [(20, 50, 500), (20, 45, 269), (13, 33, 50), (5, 25, 43), (16, 29, 50)],
        [("431.08", "4.9"), ("219.71", "3.9"), ("38.06", "1.84"), ("20.96", "0.58"), ("35.8", "2.04")],
    ),
    (
        "MobileNet sEMG", (8, 100), _mobilenet(8, 100, 12, 6),
        [(32, 64, 128, 256), (24, 38, 34, 68), (20, 35, 40, 52), (10, 12, 31, 45), (18, 17, 38, 47)],
        [("50.31", "0.74"), ("8.39", "0.34"), ("7.56", "0.29"), ("3.75", "0.12"), ("5.63", "0.22")],
    ),
    (
        "MobileNet HAR", (9, 128), _mobilenet(9, 128, 14, 6),
        [(32, 64, 128, 256), (19, 34, 63, 126), (10, 30, 48, 58), (6, 12, 31, 39), (9, 16, 35, 86)],
        [("51.72", "1.14"), ("15.51", "0.49"), ("7.37", "0.26"), ("3.33", "0.13"), ("6.21", "0.2")],
    ),
    (
        "MobileNet MHEALTH", (23, 100), _mobilenet(23, 100, 12, 11),
        [(32, 64, 128, 256), (23, 41, 77, 153), (20, 48, 51, 53), (15, 17, 23, 39), (20, 26, 43, 91)],
        [("57.35", "1.26"), ("25.61", "0.78"), ("13.65", "0.66"), ("6.78", "0.42"), ("13.15", "0.6")],
    ),
    (
        "MobileNet FinDroidHR", (6, 150), _mobilenet(6, 150, 14, 6),
        [(32, 64, 128, 256), (28, 52, 101, 202), (10, 20, 61, 54), (8, 14, 35, 41), (16, 17, 34, 83)],
        [("50.37", "1.41"), ("33.21", "1.03"), ("7.16", "0.27"), ("3.76", "0.17"), ("6.46", "0.32")],
    ),
)  # fmt: skip


def agrees(value: float, printed: str) -> bool:
    """Whether a printed figure is the value, rounded or cut off at its last digit."""
    digits = len(printed.partition(".")[2])
    cut = math.floor(value * 10**digits) / 10**digits
    return any(f"{one:.{digits}f}" == printed for one in (value, cut))


def test_forty_five_parameter_counts_and_forty_three_flop_counts_are_the_papers() -> None:
    counts, sizes, rates, different = list[int](), list[int](), list[int](), list[tuple[str, int]]()
    for data, shape, build, every, of_paper in TABLES:
        for method, (widths, (thousands, millions)) in enumerate(zip(every, of_paper, strict=True)):
            model = build(widths)
            sizes.append(parameters(model))
            rates += [flops(model, shape)] if method == 0 else []
            counts.append(agrees(sizes[-1] / 1e3, thousands))
            different += [] if agrees(flops(model, shape) / 1e6, millions) else [(data, method)]
    assert tuple(sizes) == PARAMETERS
    assert tuple(rates) == FULL_FLOPS
    assert sum(counts) == 45
    assert different == DIFFERENT
    assert parameters(vgg_11()) == 9_231_114


def test_a_printed_figure_may_be_rounded_or_cut_off_and_nothing_else() -> None:
    assert agrees(3.759, "3.75")
    assert agrees(3.759, "3.76")
    assert not agrees(3.759, "3.74")
    assert not agrees(0.597, "0.58")


TINY = [
    (lenet_1d(8, 100, 6, (2, 5, 10)), (8, 100), 1197),
    (lenet_1d(9, 128, 6, (2, 5, 10)), (9, 128), 1575),
    (lenet_1d(23, 100, 11, (2, 5, 10)), (23, 100), 1672),
    (lenet_1d(6, 150, 6, (2, 5, 10)), (6, 150), 1741),
    (lenet_2d(10, (2, 5, 10)), (1, 28, 28), 1227),
    (mobilenet_1d(8, 100, 12, 6, (3, 6, 12, 25)), (8, 100), 1086),
    (mobilenet_1d(9, 128, 14, 6, (3, 6, 12, 25)), (9, 128), 1218),
    (mobilenet_1d(23, 100, 12, 11, (3, 6, 12, 25)), (23, 100), 1756),
    (mobilenet_1d(6, 150, 14, 6, (3, 6, 12, 25)), (6, 150), 1092),
]


@pytest.mark.parametrize(("model", "shape", "count"), TINY)
def test_the_tiny_starts_of_growth_have_the_papers_counts(model: nn.Module, shape: tuple[int, ...], count: int) -> None:
    assert parameters(model) == count
    outputs = model(torch.zeros(3, *shape))
    assert outputs.shape[0] == 3
    assert torch.fx.symbolic_trace(model)(torch.zeros(3, *shape)).shape == outputs.shape


def test_a_mobilenet_with_norms_has_one_after_every_convolution() -> None:
    widths = (3, 6, 12, 25)
    plain, model = mobilenet_1d(widths=widths), mobilenet_1d(widths=widths, norms=True)
    kinds = [type(module).__name__ for module in model.children()]
    assert kinds[:-3] == ["Conv1d", "BatchNorm1d", "ReLU"] * 7
    assert parameters(model) == parameters(plain) + 2 * (3 + 3 + 6 + 6 + 12 + 12 + 25)


def test_a_tiny_vgg_runs_and_counting_leaves_its_mode_and_its_norms_alone() -> None:
    model = vgg_11(widths=(6, 12, 25, 25, 50, 50, 50, 50))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert flops(model, (3, 32, 32)) > 0
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_a_width_or_a_window_that_cannot_be_is_reported() -> None:
    with pytest.raises(TaskError, match=r"lenet_1d: windows must have at least 43 samples, got 40"):
        lenet_1d(8, 40)
    with pytest.raises(TaskError, match=r"lenet_2d: widths must be three numbers of at least 1, got \[0, 5, 10\]"):
        lenet_2d(10, (0, 5, 10))
    with pytest.raises(TaskError, match=r"mobilenet_1d: windows of 80 samples are too short for a kernel of 14"):
        mobilenet_1d(8, 80, 14)
    with pytest.raises(TaskError, match=r"mobilenet_1d: widths must be four numbers"):
        mobilenet_1d(widths=(3, 6, 12))  # type: ignore[arg-type]  # what a task file may say
    with pytest.raises(TaskError, match="vgg_11: widths must be eight numbers"):
        vgg_11(widths=(1, 2, 3))  # type: ignore[arg-type]  # likewise
