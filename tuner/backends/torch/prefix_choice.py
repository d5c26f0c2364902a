"""Which engine runs the frozen prefix fastest on this device, and what memory it takes."""

from importlib.util import find_spec

import numpy as np
import torch

from tuner.arrays import Floats
from tuner.backends.torch.clock import timed
from tuner.backends.torch.features.engines import BFLOAT, ORT, TORCH, prefix_engine
from tuner.backends.torch.model.open.load import OpenModel
from tuner.planner.device import FILL_BATCH
from tuner.process_memory import KEPT_BYTES, PeakMeter, return_freed
from tuner.task import Task

PREFIX = "prefix "
#: A smaller model gains nothing from another engine.
WORTH_FLOPS = 20_000_000
#: Another engine's seconds over PyTorch's that it has to stay under: it is one more library and a copy of the weights
#: in memory (MobileNetV2 at 160 px: 110 to 160 MB next to PyTorch's 60 to 80), and single timings differ by a tenth.
WORTH_RATIO = 0.85
COMPARED_SAMPLES = 256
MOST_CHANGED = 0.005


def fastest_prefix(task: Task, model: OpenModel, batch: Floats, seconds: float, threads: int) -> tuple[str, float]:
    """Return the figure of the engine that runs the prefix fastest: its name, and its seconds over PyTorch's in fp32.

    Args:
        task: Its samples are what predictions are compared on.
        model: The model.
        batch: Normalised, float32 [n, ...].
        seconds: PyTorch's in fp32, up to the last cut.
        threads: Threads to run with.
    """
    if model.chain is None or sum(block.flops for block in model.info.blocks) < WORTH_FLOPS:
        return f"{PREFIX}{TORCH}", 1.0
    deepest = [model.info.num_blocks - 1]
    by_kind = {TORCH: seconds}
    plain = prefix_engine(model, deepest, TORCH, threads)
    by_kind[TORCH] = min(seconds, timed(lambda: plain(batch)))
    if find_spec("onnxscript") is not None:
        try:
            other = prefix_engine(model, deepest, ORT, threads)
            if np.allclose(plain(batch)[0], other(batch)[0], atol=1e-3, rtol=1e-3):
                by_kind[ORT] = timed(lambda: other(batch))
        except Exception:  # noqa: BLE001 - an operator the exporter lacks is no reason to stop: PyTorch runs it
            by_kind.pop(ORT, None)
    if torch.cpu._is_avx512_bf16_supported() and _agrees(task, model, threads):  # noqa: SLF001 - the only way to ask
        half = prefix_engine(model, deepest, BFLOAT, threads)
        by_kind[BFLOAT] = timed(lambda: half(batch))
    best = min(by_kind, key=lambda kind: by_kind[kind])
    if by_kind[best] > WORTH_RATIO * by_kind[TORCH]:
        best = TORCH
    return f"{PREFIX}{best}", by_kind[best] / max(seconds, 1e-9)


def engine_bytes(model: OpenModel, kind: str, batch: Floats, threads: int) -> int:
    """Return the high-water mark of a batch through the engine that fills, with its session."""
    if kind == TORCH or model.chain is None:
        return 0
    peaks = []
    for _ in range(2):  # the first may load more than it needs again
        return_freed(KEPT_BYTES)  # what was measured before leaves nothing to take from
        meter = PeakMeter()
        prefix_engine(model, [model.info.num_blocks - 1], kind, threads)(batch)
        peaks.append(meter.peak_bytes())
    return min(peaks)


def _agrees(task: Task, model: OpenModel, threads: int) -> bool:
    """Return whether bf16 features change at most 0.5 % of the predictions, and so at most 0.5 points of accuracy."""
    cut = model.info.num_blocks - 1
    tail = model.tail(cut).eval()
    engines = [prefix_engine(model, [cut], kind, threads) for kind in (TORCH, BFLOAT)]
    same = total = 0
    for samples in [task.local.val] + ([task.global_.val] if task.global_ is not None else []):
        for begin in range(0, min(len(samples), COMPARED_SAMPLES), FILL_BATCH):
            indices = range(begin, min(begin + FILL_BATCH, len(samples)))
            batch = task.batch(samples, indices)
            with torch.inference_mode():
                first, second = (tail(torch.from_numpy(run(batch)[0])).argmax(1) for run in engines)
            same += int((first == second).sum())
            total += len(batch)
    return total - same <= MOST_CHANGED * total
