"""How fast this device is on this model: seconds of every block, of a step, of reading a sample."""

import math
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
import torch
from torch import fx, nn

from tuner.arrays import Floats
from tuner.backends.torch.features.engines import BFLOAT, ORT, TORCH, prefix_engine
from tuner.backends.torch.model.layout import channels_last, fast, spatial
from tuner.backends.torch.model.load import OpenModel
from tuner.backends.torch.planned.program import program
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import StepError
from tuner.plan.parts import RecipePlan
from tuner.planner.cost import PLANNED_BYTES
from tuner.planner.device import FILL_BATCH, TRAIN_PASSES, Rates, unscaled_bytes
from tuner.process_memory import KEPT_BYTES, PeakMeter, memory_limit, return_freed
from tuner.task import Task

REPEATS = 3
SCRATCH_BYTES = 8_000_000
LOADED_SAMPLES = 16
#: A smaller model gains nothing from another engine.
WORTH_FLOPS = 20_000_000
#: Another engine's seconds over PyTorch's that it has to stay under: it is one more library and a copy of the weights
#: in memory (MobileNetV2 at 160 px: 110 to 160 MB next to PyTorch's 60 to 80), and single timings differ by a tenth.
WORTH_RATIO = 0.85
COMPARED_SAMPLES = 256
MOST_CHANGED = 0.005
#: What cannot be cut short takes about so long on a device that does nothing else: to choose the prefix's engine, with
#: an export; to trace a step.
CHOICE_SECONDS, TRACING_SECONDS = 10.0, 2.0
#: Choosing takes about so much memory; a process that may not add as much stays with PyTorch.
CHOICE_BYTES = 200_000_000
#: To trace and plan one block, where there is no time to measure it.
TRACE_SECONDS = 0.05
#: That a search space is expected to ask for.
LARGEST_BATCH = 128


def measure(task: Task, model: OpenModel, threads: int, within: float = math.inf) -> Rates:
    """Run every block a few times, forward, and forward with backward; see `tuner.backends.base.Session.measure`.

    Every block runs forward once, whatever that takes. What there is no time for is derived: backward passes from
    forward ones, and PyTorch computes the prefix.
    """
    torch.set_num_threads(threads)
    clock = Clock(within, threads)
    train = task.local.train
    count = min(LOADED_SAMPLES, len(train))
    started = time.perf_counter()
    batch = task.batch(train, range(count))
    load_seconds = (time.perf_counter() - started) / count
    value = torch.from_numpy(np.resize(batch, (FILL_BATCH, *batch.shape[1:])))
    meter = PeakMeter()
    parts = model.parts()
    folded = [fast(part) if isinstance(part, fx.GraphModule) else part for part in parts]
    forward, backward, inputs = [], [], spatial(value)
    for part in folded:
        with torch.inference_mode():
            outputs = part(inputs)
            forward.append(_timed(lambda part=part, inputs=inputs: part(inputs), clock) / FILL_BATCH)  # type: ignore[misc]  # mypy cannot infer the lambda
        inputs = outputs
    fill_peak = meter.peak_bytes()
    latency = sum(chain_seconds(folded, value[:1])) if clock.has(0.0) else 0.0
    del folded
    kind, ratio = TORCH, 1.0
    small = sum(block.flops for block in model.info.blocks) < WORTH_FLOPS
    limit = memory_limit()
    chooses = clock.has(0.0) if small else clock.has(CHOICE_SECONDS) and (limit is None or limit >= CHOICE_BYTES)
    if chooses:
        kind, ratio = _fastest_prefix(task, model, value.numpy(), sum(forward[:-1]) * FILL_BATCH, threads)
    rows = _rows_within(limit, max(block.saved_bytes for block in model.info.blocks))
    inputs = spatial(value[:rows])
    for part, seconds in zip(parts, forward, strict=True):
        channels_last(part)
        with torch.inference_mode():
            outputs = part(inputs)
        leaf = inputs.clone().requires_grad_()
        if clock.has(0.0):
            taken = _timed(lambda part=part, leaf=leaf: _step(part, leaf), clock) / rows  # type: ignore[misc]  # mypy cannot infer the lambda
            backward.append(taken)
        else:
            backward.append(TRAIN_PASSES * seconds)
        inputs = outputs
    steps, reading = _overhead_seconds(model), _read_bytes()
    complete = chooses and clock.has(0.0 if small else TRACING_SECONDS)
    tracing = _trace_seconds(task, model) if complete else TRACE_SECONDS
    if complete:  # last: it slows what follows
        fill_peak = max(fill_peak, _engine_bytes(model, kind, value.numpy(), threads))
    return Rates(
        forward_seconds=tuple(forward),
        train_seconds=tuple(backward),
        step_seconds=steps,
        load_seconds=load_seconds,
        read_bytes=reading,
        scratch_bytes=SCRATCH_BYTES,
        fill_peak_bytes=fill_peak + unscaled_bytes(model.info),
        prefix_kind=kind,
        prefix_ratio=ratio,
        latency_seconds=latency,
        trace_seconds=tracing,
        complete=complete,
    )


def _rows_within(limit: int | None, saved_bytes: int) -> int:
    """Return how many samples the backward passes are measured on: fewer where memory is limited.

    Args:
        limit: Bytes that this process may add; None for no limit.
        saved_bytes: What the largest block keeps of one sample; gradients take about as much, so does the rest.
    """
    return FILL_BATCH if limit is None else max(1, min(FILL_BATCH, limit // (4 * max(1, saved_bytes))))


def chain_seconds(parts: Sequence[nn.Module], sample: torch.Tensor) -> list[float]:
    """Return the seconds of each part on the output of the one before it.

    Args:
        parts: Parts of the model, in evaluation mode.
        sample: What the first takes: float32 [1, ...] for the latency of one sample.
    """
    seconds, value = [], spatial(sample)
    with torch.inference_mode():
        for part in parts:
            seconds.append(_timed(lambda part=part, value=value: part(value)))  # type: ignore[misc]  # mypy cannot infer the lambda
            value = part(value)
    return seconds


def _fastest_prefix(task: Task, model: OpenModel, batch: Floats, seconds: float, threads: int) -> tuple[str, float]:
    """Return the engine that runs the prefix fastest, and its seconds over PyTorch's in fp32.

    Args:
        task: Its samples are what predictions are compared on.
        model: The model.
        batch: Normalised, float32 [n, ...].
        seconds: PyTorch's in fp32, up to the last cut.
        threads: Threads to run with.
    """
    if model.chain is None or sum(block.flops for block in model.info.blocks) < WORTH_FLOPS:
        return TORCH, 1.0
    deepest = [model.info.num_blocks - 1]
    by_kind = {TORCH: seconds}
    plain = prefix_engine(model, deepest, TORCH, threads)
    by_kind[TORCH] = min(seconds, _timed(lambda: plain(batch)))
    if find_spec("onnxscript") is not None:
        try:
            other = prefix_engine(model, deepest, ORT, threads)
            if np.allclose(plain(batch)[0], other(batch)[0], atol=1e-3, rtol=1e-3):
                by_kind[ORT] = _timed(lambda: other(batch))
        except Exception:  # noqa: BLE001 - an operator the exporter lacks is no reason to stop: PyTorch runs it
            by_kind.pop(ORT, None)
    if torch.cpu._is_avx512_bf16_supported() and _agrees(task, model, threads):  # noqa: SLF001 - the only way to ask
        half = prefix_engine(model, deepest, BFLOAT, threads)
        by_kind[BFLOAT] = _timed(lambda: half(batch))
    best = min(by_kind, key=lambda kind: by_kind[kind])
    if by_kind[best] > WORTH_RATIO * by_kind[TORCH]:
        best = TORCH
    return best, by_kind[best] / max(seconds, 1e-9)


def _engine_bytes(model: OpenModel, kind: str, batch: Floats, threads: int) -> int:
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


class Clock:
    """Says whether there is time for more, on a device that may do other work.

    Args:
        within: Seconds from now.
        threads: Threads that the model runs on.
    """

    def __init__(self, within: float, threads: int) -> None:
        self._started, self._busy, self._within, self._threads = *_now(), within, threads

    def has(self, seconds: float) -> bool:
        """Return whether what takes so long on an idle device ends in time at the pace of now."""
        now, busy = _now()
        passed = now - self._started
        pace = max(1.0, self._threads * passed / max(busy - self._busy, 1e-3)) if passed > 0.1 else 1.0  # noqa: PLR2004 - too short to tell
        return passed + pace * seconds < self._within


def _now() -> tuple[float, float]:
    """Return the clock, and the processor seconds that this process has used."""
    return time.perf_counter(), time.process_time()


def _timed(run: Callable[[], object], clock: Clock | None = None) -> float:
    """Return the least seconds of a few runs, the first of which counts only where there is no time for another."""
    seconds: list[float] = []
    while len(seconds) <= REPEATS and (not seconds or clock is None or clock.has(0.0)):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:] or seconds)


def _step(part: nn.Module, value: torch.Tensor) -> None:
    output = part(value)
    output.backward(torch.ones_like(output))
    for parameter in part.parameters():
        parameter.grad = None
    value.grad = None


def _trace_seconds(task: Task, model: OpenModel) -> float:
    """Return the seconds to trace and plan a step, per block of the tail; 0 where no tail would be, or can be.

    Tracing takes as long as there are operators, whatever their sizes: the later half of the model stands for all.
    """
    blocks = model.info.blocks
    if LARGEST_BATCH * sum(block.saved_bytes for block in blocks) < PLANNED_BYTES:
        return 0.0
    cut = len(blocks) // 2
    shape, outputs = blocks[cut].in_shape, model.info.outputs
    started = time.perf_counter()
    try:
        step = trace(
            model.tail(cut), RecipePlan(), loss=task.loss, input_shape=shape, outputs=outputs, batch_size=FILL_BATCH
        )
        program(step)
    except StepError:
        return 0.0
    return (time.perf_counter() - started) / (len(blocks) - cut)


def _overhead_seconds(model: OpenModel) -> float:
    """Return what an optimiser step costs on the smallest tail, apart from its samples."""
    tail = model.tail(model.info.num_blocks - 1)
    parameters = list(tail.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=0.0)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimiser.step()

    seconds = _timed(step)
    for parameter in parameters:
        parameter.grad = None
    return seconds + 1e-3


def _read_bytes() -> float:
    """Return the bytes of features a second that are read back and widened to float32."""
    stored = np.ones((64, 96 * 14 * 14), np.float16)
    seconds = _timed(lambda: stored.astype(np.float32).tobytes())
    return stored.size * 4 / max(seconds, 1e-6) / 4
