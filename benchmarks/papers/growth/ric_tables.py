"""Parameters and FLOPs of every structure in MDLdroidLite's Tables 4 and 5, counted on our networks.

The papers print thousands and millions to two or three digits, some rounded and some cut off: 3,759 parameters appear
as 3.75 K and as 3.76 K. A count agrees where rounding or cutting it off gives the printed figure. Four entries of the
paper's Table 2 and one of Table 1 cannot give the printed counts and are corrected: LeNet's kernels are 14 wide on
every set, MHEALTH has 11 classes, FinDroidHR 6 channels, and MobileNet's third depthwise convolution stride 2.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import nn

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner.models.counts import flops, parameters
from tuner.models.lenet import lenet_1d, lenet_2d
from tuner.models.mobilenet import mobilenet_1d
from tuner.models.vgg import vgg_11

METHODS = ("full", "S-search", "V1", "V2", "pruning")
#: Of MNIST's ten FLOP counts only these two disagree, with any rule that agrees with the other 43.
DIFFERENT = (("LeNet MNIST", "full"), ("LeNet MNIST", "V2"))
VGG_PARAMETERS = 9_231_114

Widths = tuple[int, ...]
Printed = tuple[str, str]  # parameters in thousands, FLOPs in millions


class Counted(NamedTuple):
    """One structure of the tables: what the paper prints, thousands of parameters and millions of FLOPs, and ours."""

    data: str
    method: str
    widths: Widths
    printed: Printed
    parameters: int
    flops: int

    @property
    def parameters_agree(self) -> bool:
        """Whether the printed thousands are ours."""
        return agrees(self.parameters / 1e3, self.printed[0])

    @property
    def flops_agree(self) -> bool:
        """Whether the printed millions are ours."""
        return agrees(self.flops / 1e6, self.printed[1])


def _lenet(channels: int, time: int, outputs: int) -> Callable[[Any], nn.Module]:
    return lambda widths: lenet_1d(channels, time, outputs, widths)


def _mobilenet(channels: int, time: int, kernel: int, outputs: int) -> Callable[[Any], nn.Module]:
    return lambda widths: mobilenet_1d(channels, time, kernel, outputs, widths)


#: By network and data set: the shape of a sample, the network, and of each method widths and what is printed.
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


def counted() -> list[Counted]:
    """Build and count all 45 structures."""
    found = []
    for data, shape, build, every, of_paper in TABLES:
        for method, widths, printed in zip(METHODS, every, of_paper, strict=True):
            model = build(widths)
            found.append(Counted(data, method, widths, printed, parameters(model), flops(model, shape)))
    return found


def claims(found: Sequence[Counted]) -> list[Claim]:
    """Return what the counts show."""
    sizes = sum(structure.parameters_agree for structure in found)
    rates = sum(structure.flops_agree for structure in found)
    different = tuple((structure.data, structure.method) for structure in found if not structure.flops_agree)
    vgg = parameters(vgg_11())
    said = ", ".join(
        f"{one.data} {one.method} {one.flops / 1e6:.3f} M against {one.printed[1]} M"
        for one in found
        if not one.flops_agree
    )
    return [
        Claim("45 of 45 parameter counts", "Tables 4 and 5", f"{sizes} of {len(found)}", sizes == len(found)),
        Claim(
            "43 of 45 FLOP counts: 2 × (multiply-accumulates + bias adds) + ReLU outputs + pool inputs",
            "Tables 4 and 5",
            f"{rates} of {len(found)}; different: {said}",
            different == DIFFERENT,
        ),
        Claim("VGG-11 with batch norm", f"{VGG_PARAMETERS:,} parameters", f"{vgg:,}", vgg == VGG_PARAMETERS),
    ]


def main() -> None:
    """Count, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    found = counted()
    rows: list[Row] = [
        {"network": one.data, "structure": one.method, "widths": "-".join(map(str, one.widths)),
         "parameters": f"{one.parameters:,}", "printed K": one.printed[0],
         "FLOPs": f"{one.flops:,}", "printed M": one.printed[1]}
        for one in found
    ]  # fmt: skip
    finish("ric_tables", rows, claims(found), asked.json)


if __name__ == "__main__":
    main()
