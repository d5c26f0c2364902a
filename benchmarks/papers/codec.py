"""Microseconds per 96 × 14 × 14 map to encode and decode, beside `torch.quantile` and a plain copy of the map.

One thread, batches of 64 maps, as the map after block f13 of MobileNetV2 (Cache-and-Reuse, table 6). Each arm goes
through a pool of batches that is larger than the caches, as training does: the plain copy is what reading an
uncompressed batch would cost. Arms take turns; the first rounds are dropped.
"""

import os

from benchmarks.lib.report import benchmark_parser
from tuner.arrays import Floats

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.lib.report import Claim, Row, finish, interleave, ratio
from tuner.store.codec import Codec
from tuner.store.quantiles import calibrate
from tuner.store.sizes import has_own_scales

SHAPE = (96, 14, 14)
BATCH = 64
BATCHES = 12  # 58 MB of float32
CALIBRATION = 256
WIDTHS = (8, 4, 2, 1)
MOBILENET_F1_TO_F13 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
PREFIX_FRACTION = 1 / 8
COPIES = 3.0
CALIBRATION_AGREES = 1e-6
MICROSECONDS = 1e6
PAPER_ENCODE = {8: 466.36, 4: 471.99, 2: 465.78}  # table 6, µs per map on a Jetson Orin NX
PAPER_DECODE = {8: 34.83, 4: 30.23, 2: 28.40}


def feature_maps(count: int) -> Floats:
    """Maps whose channels differ in centre and spread, as a linear bottleneck's do."""
    generator = np.random.default_rng(0)
    spread = np.exp(generator.normal(size=(SHAPE[0], 1, 1))).astype(np.float32)
    centre = generator.normal(size=(SHAPE[0], 1, 1)).astype(np.float32)
    return generator.standard_normal((count, *SHAPE), dtype=np.float32) * spread + centre


def inverted_residual(inputs: int, outputs: int, stride: int, expansion: int) -> torch.nn.Sequential:
    """A block of MobileNetV2, its sum left out: that is no measurable part of its time."""
    hidden = inputs * expansion

    def unit(i: int, o: int, kernel: int = 1, step: int = 1, groups: int = 1) -> list[torch.nn.Module]:
        convolution = torch.nn.Conv2d(i, o, kernel, step, kernel // 2, groups=groups, bias=False)
        return [convolution, torch.nn.BatchNorm2d(o), torch.nn.ReLU6(inplace=True)]

    expand = unit(inputs, hidden) if expansion > 1 else []
    return torch.nn.Sequential(*expand, *unit(hidden, hidden, 3, stride, hidden), *unit(hidden, outputs)[:2])


def prefix_seconds(repetitions: int) -> list[float]:
    """Seconds per batch of the frozen prefix, MobileNetV2 up to f13 at 224 pixels, with random weights."""
    blocks: list[torch.nn.Module] = [
        torch.nn.Conv2d(3, 32, 3, 2, 1, bias=False),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU6(inplace=True),
    ]
    channels = 32
    for expansion, width, count, stride in MOBILENET_F1_TO_F13:
        for number in range(count):
            blocks.append(inverted_residual(channels, width, 1 if number else stride, expansion))
            channels = width
    prefix = torch.nn.Sequential(*blocks).eval()
    for weight in prefix.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    pixels = torch.randn(8, 3, 224, 224).to(memory_format=torch.channels_last)  # few at once, so that it runs often
    with torch.inference_mode():
        seconds = interleave({"prefix": lambda: prefix(pixels)}, repetitions, 1)["prefix"]
    return [second * BATCH / len(pixels) for second in seconds]


def coding_arms(maps: Floats) -> dict[str, Callable[[], object]]:
    """The plain copy, and both directions at each width, each going round the pool by itself."""
    low, high = calibrate(maps[:CALIBRATION])
    batches = maps.reshape(-1, BATCH, *SHAPE)
    out = np.empty_like(batches[0])
    arms = {"copy": taking_turns(partial(np.copyto, out), batches)}
    for bits in WIDTHS:
        codec = Codec(bits, SHAPE, low, high, has_own_scales(bits, SHAPE))
        records = [codec.encode(batch) for batch in batches]
        arms[f"encode {bits}"] = taking_turns(codec.encode, batches)
        arms[f"decode {bits}"] = taking_turns(partial(codec.decode, out=out), records)
    return arms


def taking_turns(run: Callable[[Any], object], batches: Iterable[object]) -> Callable[[], object]:
    """Run on the next batch at every call."""
    pool = cycle(batches)
    return lambda: run(next(pool))


def calibration_arms(maps: Floats) -> tuple[dict[str, Callable[[], object]], dict[str, float]]:
    """Both ways to the quantiles of a batch, and how far each is off a sort in float64, as a share of the range."""
    sample = maps[:BATCH]
    levels = torch.tensor([0.01, 0.99])

    def by_torch() -> torch.Tensor:
        return torch.quantile(torch.from_numpy(sample).transpose(0, 1).reshape(SHAPE[0], -1), levels, dim=1)

    exact = np.quantile(sample.astype(np.float64).transpose(1, 0, 2, 3).reshape(SHAPE[0], -1), [0.01, 0.99], axis=1)
    spread = exact[1] - exact[0]
    off = {
        "calibrate": float((np.abs(np.stack(calibrate(sample, 0.01)) - exact) / spread).max()),
        "torch.quantile": float((np.abs(by_torch().numpy() - exact) / spread).max()),
    }
    return {"calibrate": lambda: calibrate(sample, 0.01), "torch.quantile": by_torch}, off


def rows_of(seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    """The table: microseconds per map."""

    def per_map(name: str) -> dict[str, object]:
        values = [value / BATCH * MICROSECONDS for value in seconds[name]]
        return {"median µs": round(median(values), 2), "least µs": round(min(values), 2)}

    rows: list[Row] = []
    for name in seconds:
        verb, _, bits = name.partition(" ")
        printed = {"encode": PAPER_ENCODE, "decode": PAPER_DECODE}.get(verb, {}).get(int(bits or 0), "")
        copies = median(seconds[name]) / median(seconds["copy"])
        rows.append({"per map": name, **per_map(name), "copies": round(copies, 2), "paper µs (Orin NX)": printed})
    return rows


def judge(seconds: Mapping[str, Sequence[float]], off: Mapping[str, float]) -> list[Claim]:
    """Hold the times against the bounds."""
    claims = []
    slowest = max((f"encode {bits}" for bits in WIDTHS), key=lambda name: median(seconds[name]))
    share = median(seconds[slowest]) / median(seconds["prefix"])
    least = min(seconds[slowest]) / min(seconds["prefix"])
    claims.append(
        Claim(
            "encoding takes at most 1/8 of the prefix's own time per sample, at every width",
            "project's bound; in the paper 0.47 ms of 3.87 ms a step",
            f"{slowest} bits: 1/{1 / share:.0f} of medians, 1/{1 / least:.0f} of minima",
            "ratio",
            share <= PREFIX_FRACTION,
        )
    )
    for bits in (4, 2):
        copies = median(seconds[f"decode {bits}"]) / median(seconds["copy"])
        claims.append(
            Claim(
                f"decoding at {bits} bits takes at most 3× a plain fp32 copy of the map",
                "project's bound",
                ratio(seconds, f"decode {bits}", "copy"),
                "ratio",
                copies <= COPIES,
                "" if copies <= COPIES else "mask, cast, scale and offset are four passes; numpy fuses none",
            )
        )
    faster = median(seconds["torch.quantile"]) / median(seconds["calibrate"])
    claims.append(
        Claim(
            "quantiles by selection are faster than torch.quantile",
            "torch.quantile, one thread",
            ratio(seconds, "torch.quantile", "calibrate"),
            "ratio",
            faster > 1,
        )
    )
    claims.append(
        Claim(
            "quantiles by selection are those of a full sort in float64, to 1e-6 of the range",
            f"torch.quantile is off by {off['torch.quantile']:.1e}",
            f"off by {off['calibrate']:.1e}",
            "exact",
            off["calibrate"] <= CALIBRATION_AGREES,
        )
    )
    return claims


def main() -> None:
    """Run the benchmark."""
    options = benchmark_parser(__doc__, "a tenth of the repetitions").parse_args()
    torch.set_num_threads(1)
    repetitions = 20 if options.quick else 200
    maps = feature_maps(BATCH * BATCHES)
    calibration, off = calibration_arms(maps)
    seconds = interleave(coding_arms(maps), repetitions)
    seconds |= interleave(calibration, max(5, repetitions // 10))
    seconds["prefix"] = prefix_seconds(max(5, repetitions // 10))
    finish("codec", rows_of(seconds), judge(seconds, off), options.json)


if __name__ == "__main__":
    main()
