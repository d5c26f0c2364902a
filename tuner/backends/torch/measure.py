"""How fast this device is on this model: seconds of every block, of a step, of reading a sample."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
from torch import fx, nn

from tuner.arrays import Floats
from tuner.backends.torch.clock import Clock, timed
from tuner.backends.torch.features.engines import BFLOAT, ORT, TORCH, prefix_engine
from tuner.backends.torch.model.graph.layout import channels_last, fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import torch_loss
from tuner.machine.process_memory import KEPT_BYTES, PeakMeter, memory_limit, return_freed
from tuner.plan.info import BlockInfo, ModelInfo
from tuner.plan.parts import RecipePlan
from tuner.planner.device import COMPLETE, FILL_BATCH, Rates, rates_from, unscaled_bytes
from tuner.planner.tail_terms import PLANNED_BYTES, UNLIMITED, planned_executor
from tuner.task import Task
from tuner.training.epochs import Report

LOADED_SAMPLES = 16
#: What it takes on an idle device to choose the prefix's engine, and to trace a step: neither can be cut short.
CHOICE_SECONDS, TRACING_SECONDS = 10.0, 2.0
#: Choosing takes about so much memory; a process that may not add as much stays with PyTorch.
CHOICE_BYTES = 200_000_000
#: That a search space is expected to ask for.
LARGEST_BATCH = 128
#: What the figure of the chosen engine is named by.
PREFIX = "prefix "
#: A smaller model gains nothing from another engine.
WORTH_FLOPS = 20_000_000
#: Another engine's seconds over PyTorch's that it has to stay under: it is one more library and a copy of the weights
#: in memory, and single timings differ by a tenth.
WORTH_RATIO = 0.85
COMPARED_SAMPLES = 256
MOST_CHANGED = 0.005


class Measurement:
    """Runs every block a few times, forward, and forward with backward; see `tuner.backends.base.Session.measure`.

    Each block runs by itself, on made-up inputs: what an interrupted measuring has reported is not run again.
    """

    def __init__(self, task: Task, model: OpenModel, clock: Clock, known: Mapping[str, float], report: Report) -> None:
        self._task, self._model, self._clock, self._report = task, model, clock, report
        self._figures = dict(known)

    def rates(self) -> Rates:
        """Measure what there is time for, and return all rates."""
        task, model, clock = self._task, self._model, self._clock
        torch.set_num_threads(clock.threads)
        train = task.local.train
        count = min(LOADED_SAMPLES, len(train))
        started = time.perf_counter()
        batch = task.batch(train, range(count))
        self._note("load", (time.perf_counter() - started) / count)
        value = np.resize(batch, (FILL_BATCH, *batch.shape[1:]))
        parts = model.parts()
        self._forward(parts, torch.from_numpy(value))
        small = sum(block.flops for block in model.info.blocks) < WORTH_FLOPS
        limit = memory_limit()
        affords = small or limit is None or limit >= CHOICE_BYTES
        has_time = clock.has(0.0 if small else CHOICE_SECONDS)
        if self._has("forward") and not self._prefix and affords and has_time:
            blocks = range(model.info.num_blocks - 1)
            seconds = FILL_BATCH * sum(self._figures[f"forward {index}"] for index in blocks)
            self._note(*_fastest_prefix(task, model, value, seconds, clock.threads))
        saved = max(1, *(block.saved_bytes for block in model.info.blocks))
        rows = FILL_BATCH if limit is None else limit // (4 * saved)  # gradients take as much again, so does the rest
        self._backward(parts, max(1, min(FILL_BATCH, rows)))
        if "step" not in self._figures:
            self._note("step", _overhead_seconds(model))
            self._note("read", _read_bytes())
        chosen = self._prefix and self._has("train")
        traces = steps_are_traced(model.info) and self._lacks("trace")  # an earlier run may have traced none
        if chosen and (traces or self._lacks(COMPLETE)) and clock.has(0.0 if small else TRACING_SECONDS):
            if traces:
                self._note("trace", _trace_seconds(task, model))
            if self._lacks(COMPLETE):
                nbytes = _engine_bytes(model, self._prefix, value, clock.threads)  # last: it slows what follows
                self._note("fill peak", max(self._figures["fill peak"], nbytes))
                self._note(COMPLETE, 1.0)
        return rates_from(model.info, self._figures)

    @property
    def _prefix(self) -> str:
        """The engine that was chosen for the prefix; empty before."""
        return next((name.removeprefix(PREFIX) for name in self._figures if name.startswith(PREFIX)), "")

    def _note(self, name: str, value: float) -> None:
        self._figures[name] = value
        self._report({"figure": name, "value": value})

    def _lacks(self, name: str) -> bool:
        """Return whether a figure is not known yet, and there is time to measure it."""
        return name not in self._figures and self._clock.has(0.0)

    def _has(self, kind: str) -> bool:
        """Return whether the figures of all blocks are known, forward or of training."""
        return all(f"{kind} {index}" in self._figures for index in range(self._model.info.num_blocks))

    def _forward(self, parts: Sequence[nn.Module], batch: torch.Tensor) -> None:
        """Measure each block's forward pass, and with all of them the memory of a filling pass and the latency."""
        meter, info = PeakMeter(), self._model.info
        folded = [fast(part) if isinstance(part, fx.GraphModule) else part for part in parts]
        run_before = len(self._figures)
        for index, part in enumerate(folded):
            if self._lacks(f"forward {index}"):
                inputs = _made_up(info.blocks[index], FILL_BATCH)
                with torch.inference_mode():
                    self._note(f"forward {index}", timed(partial(part, inputs), self._clock) / FILL_BATCH)
        if self._has("forward") and self._lacks("fill peak"):
            if len(self._figures) - run_before < len(folded):  # an earlier process ran the others
                chain_seconds(folded, batch)
            self._note("fill peak", meter.peak_bytes() + unscaled_bytes(info))
        if self._lacks("latency"):
            self._note("latency", sum(chain_seconds(folded, batch[:1])))

    def _backward(self, parts: Sequence[nn.Module], rows: int) -> None:
        """Measure each block's forward and backward pass on so many samples."""
        for index, part in enumerate(parts):
            if self._lacks(f"train {index}"):
                channels_last(part)
                leaf = _made_up(self._model.info.blocks[index], rows).requires_grad_()
                self._note(f"train {index}", timed(partial(_step, part, leaf), self._clock) / rows)


def _made_up(block: BlockInfo, rows: int) -> torch.Tensor:
    """Return inputs of a block: how long it takes does not depend on their values."""
    return spatial(torch.rand(rows, *block.in_shape))


def chain_seconds(parts: Sequence[nn.Module], sample: torch.Tensor) -> list[float]:
    """Return the seconds of each part, in evaluation mode, on the output of the one before it."""
    seconds, value = [], spatial(sample)
    with torch.inference_mode():
        for part in parts:
            seconds.append(timed(lambda part=part, value=value: part(value)))  # type: ignore[misc]  # mypy cannot infer the lambda
            value = part(value)
    return seconds


def _step(part: nn.Module, value: torch.Tensor) -> None:
    output = part(value)
    output.backward(torch.ones_like(output))
    for parameter in part.parameters():
        parameter.grad = None
    value.grad = None


def steps_are_traced(model: ModelInfo) -> bool:
    """Return whether the planned executor would be used for some tail of a model, so that its step is traced.

    As in `tuner.planner.tail_terms.planned_from`, that takes more where this process's memory is not limited.
    """
    least = PLANNED_BYTES * (UNLIMITED if memory_limit() is None else 1)
    is_large = LARGEST_BATCH * sum(block.saved_bytes for block in model.blocks) >= least
    return is_large and planned_executor() is not None


def _trace_seconds(task: Task, model: OpenModel) -> float:
    """Return the seconds to trace and plan a step, per block of the tail; 0 where it cannot be.

    Tracing takes as long as there are operators, whatever their sizes: the later half of the model stands for all.
    """
    blocks = model.info.blocks
    cut = len(blocks) // 2
    shape, outputs, loss = blocks[cut].in_shape, model.info.outputs, torch_loss(task.targets)
    executor = planned_executor()
    if executor is None:
        return 0.0
    planned = executor.load()
    started = time.perf_counter()
    try:
        tail = model.tail(cut)
        planned.plan_traced(
            trace(tail, RecipePlan(), loss=loss, input_shape=shape, outputs=outputs, batch_size=FILL_BATCH)
        )
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

    seconds = timed(step)
    for parameter in parameters:
        parameter.grad = None
    return seconds + 1e-3


def _read_bytes() -> float:
    """Return the bytes of features a second that are read back and widened to float32."""
    stored = np.ones((64, 96 * 14 * 14), np.float16)
    seconds = timed(lambda: stored.astype(np.float32).tobytes())
    return stored.size * 4 / max(seconds, 1e-6) / 4


def _fastest_prefix(task: Task, model: OpenModel, batch: Floats, seconds: float, threads: int) -> tuple[str, float]:
    """Return the figure of the engine that runs the prefix fastest: its name, and its seconds over PyTorch's in fp32.

    The batch is normalised, float32 [n, ...]; `seconds` are PyTorch's for it in fp32, up to the last cut.
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
