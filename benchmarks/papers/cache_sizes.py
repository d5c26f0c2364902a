"""The cache sizes that Cache-and-Reuse prints, beside the arithmetic and beside what the store really writes.

The paper's figures (tables 2 and 4; CIFAR-100's 50,000 training images at 224 pixels) are MiB. The shapes of the maps
are those that torchvision's models have; EfficientFormerV2-S0, with two of the paper's 17 figures, is not among them.
The arithmetic is `images × C × H × W × bits / 8`. The store's figure is the bytes on disk of a file of records, index
entries and header included, of `RECORDS` samples, scaled to 50,000. Its records of 1 bit have scales of their own,
which the paper's do not have and which are a column of their own.
"""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.lib.report import Claim, benchmark_parser, finish
from tuner.backends.torch.model.vision import torchvision
from tuner.store.codec import Codec, has_own_scales
from tuner.store.files.header import StoreKey
from tuner.store.files.records import RecordFile

IMAGES = 50_000
RECORDS = 200
QUICK_RECORDS = 20
MIB = 2**20
TOLERANCE_MIB, TOLERANCE_RESNET_MIB = 1.8, 4.0  # the paper rounds up, and prints 1200 for ResNet-18 at 4 bits
PIXELS = 224
#: Setting, torchvision's model and the module whose output is stored, and the paper's MiB by bits.
PRINTED: tuple[tuple[str, str, str, dict[int, int]], ...] = (
    ("MobileNetV2 last 1, after f16", "mobilenet_v2", "features.16", {4: 188, 2: 95}),
    ("MobileNetV2 last 4, after f13", "mobilenet_v2", "features.13", {32: 3589, 8: 898, 4: 450, 2: 226, 1: 113}),
    ("MobileNetV2 last 7, after f10", "mobilenet_v2", "features.10", {4: 300, 2: 151}),
    ("EfficientNet-B0, row 1", "efficientnet_b0", "features.6", {4: 226, 2: 113}),
    ("EfficientNet-B0 last 5", "efficientnet_b0", "features.5", {4: 525, 2: 263}),
    ("ResNet-18 last 2", "resnet18", "layer3", {4: 1200, 2: 599}),
)


@dataclass(frozen=True, slots=True)
class Size:
    """One figure of the paper, and ours."""

    setting: str
    shape: tuple[int, ...]
    bits: int
    paper_mib: int
    record_bytes: int
    scale_bytes: int
    disk_bytes_per_record: float
    header_bytes: int

    @property
    def record_mib(self) -> float:
        """What the codec's records take, without scales of their own."""
        return IMAGES * (self.record_bytes - self.scale_bytes) / MIB

    @property
    def scales_mib(self) -> float:
        """What scales of the records' own take."""
        return IMAGES * self.scale_bytes / MIB

    @property
    def arithmetic_mib(self) -> float:
        """What the formula gives."""
        return IMAGES * math.prod(self.shape) * self.bits / 8 / MIB

    @property
    def disk_mib(self) -> float:
        """What the store takes, header and index included."""
        return (IMAGES * self.disk_bytes_per_record + self.header_bytes) / MIB

    @property
    def tolerance_mib(self) -> float:
        """How far above the arithmetic the paper's figure may lie."""
        return TOLERANCE_RESNET_MIB if self.paper_mib == 1200 else TOLERANCE_MIB

    @property
    def row(self) -> dict[str, object]:
        """A line of the table."""
        return {
            "setting": self.setting,
            "map": "×".join(map(str, self.shape)),
            "bits": self.bits,
            "paper MiB": self.paper_mib,
            "arithmetic MiB": round(self.arithmetic_mib, 1),
            "codes MiB": round(self.record_mib, 1),
            "scales MiB": round(self.scales_mib, 1),
            "on disk MiB": round(self.disk_mib, 1),
            "paper - arithmetic": round(self.paper_mib - self.arithmetic_mib, 2),
            "disk - codes - scales": round(self.disk_mib - self.record_mib - self.scales_mib, 2),
        }


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


def measure(setting: str, shape: tuple[int, ...], bits: int, paper_mib: int, records: int) -> Size:
    """Write records of one setting and look at the files."""
    low, high = (np.zeros(shape[0], np.float32), np.ones(shape[0], np.float32)) if bits <= 8 else (None, None)
    codec = Codec(bits, shape, low, high, has_own_scales(bits, shape))
    key = StoreKey("prefix", "input", "torch-fp32", setting, bits, shape, codec.scales, codec.per_sample)
    maps = np.random.default_rng(0).random((records, *shape), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records"
        with RecordFile.create_or_open(path, key, low, high) as file:
            file.append([f"{number:032x}" for number in range(records)], codec.encode(maps))
            header = sum((path / name).stat().st_size for name in ("header", "cost") if (path / name).exists())
            own, each = codec.scale_bytes, file.nbytes / records
            return Size(setting, shape, bits, paper_mib, codec.record_bytes, own, each, header)


def judge(sizes: list[Size]) -> list[Claim]:
    """Hold the sizes against the arithmetic and the paper."""
    exact = all(size.record_mib == size.arithmetic_mib for size in sizes)
    over_paper = [size.paper_mib - size.arithmetic_mib for size in sizes]
    within = [0 <= over <= size.tolerance_mib for over, size in zip(over_paper, sizes, strict=True)]
    over_disk = [size.disk_mib - size.arithmetic_mib - size.scales_mib for size in sizes]
    own = max(size.scales_mib / size.record_mib for size in sizes)
    on_disk = [0 <= over <= TOLERANCE_MIB for over in over_disk]
    return [
        Claim(
            f"codes of all {len(sizes)} settings take exactly images × C × H × W × bits / 8",
            "arithmetic",
            f"{sum(size.record_mib == size.arithmetic_mib for size in sizes)} of {len(sizes)} equal",
            exact,
        ),
        Claim(
            "the arithmetic lies within +0/+1.8 MiB under the paper's figures (ResNet-18 at 4 bits: +4)",
            "Cache-and-Reuse, tables 2 and 4",
            f"paper over arithmetic by {min(over_paper):.2f} to {max(over_paper):.2f} MiB, {sum(within)} within",
            all(within),
        ),
        Claim(
            "index, checksums, header and shared scales add at most 1.8 MiB to codes and scales of records' own",
            "Cache-and-Reuse adds 0.1 to 3.7 MiB",
            f"{min(over_disk):.2f} to {max(over_disk):.2f} MiB; scales of their own take up to {own:.1%} of the codes",
            all(on_disk),
        ),
    ]


def main() -> None:
    """Run the benchmark."""
    options = benchmark_parser(__doc__, f"write {QUICK_RECORDS} records a file, not {RECORDS}").parse_args()
    records = QUICK_RECORDS if options.quick else RECORDS
    sizes = [
        measure(setting, shape_after(model, module), bits, paper_mib, records)
        for setting, model, module, printed in PRINTED
        for bits, paper_mib in printed.items()
    ]
    finish("cache_sizes", [size.row for size in sizes], judge(sizes), options.json)


if __name__ == "__main__":
    main()
