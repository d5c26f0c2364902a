"""How fast this device is on this model: seconds of every block, of a step, of reading a sample."""

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
import torch
from torch import fx, nn

from tuner.backends.base import silent
from tuner.backends.torch.clock import Clock, timed
from tuner.backends.torch.model.graph.layout import channels_last, fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.planned.program import program
from tuner.backends.torch.prefix_choice import PREFIX, WORTH_FLOPS, engine_bytes, fastest_prefix
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import torch_loss
from tuner.plan.info import BlockInfo, ModelInfo
from tuner.plan.parts import RecipePlan
from tuner.planner.device import COMPLETE, FILL_BATCH, Rates, rates_from, unscaled_bytes
from tuner.planner.tail_terms import PLANNED_BYTES
from tuner.process_memory import PeakMeter, memory_limit
from tuner.task import Task
from tuner.training.epochs import Report

LOADED_SAMPLES = 16
#: What cannot be cut short takes about so long on a device that does nothing else: to choose the prefix's engine, with
#: an export; to trace a step.
CHOICE_SECONDS, TRACING_SECONDS = 10.0, 2.0
#: Choosing takes about so much memory; a process that may not add as much stays with PyTorch.
CHOICE_BYTES = 200_000_000
#: That a search space is expected to ask for.
LARGEST_BATCH = 128


def measure(
    task: Task,
    model: OpenModel,
    threads: int,
    within: float = math.inf,
    known: Mapping[str, float] = MappingProxyType({}),
    report: Report = silent,
) -> Rates:
    """Run every block a few times, forward, and forward with backward; see `tuner.backends.base.Session.measure`.

    Each block runs by itself, on made-up inputs: what an interrupted measuring has reported is not run again.
    """
    torch.set_num_threads(threads)
    figures = _Figures(model, Clock(within, threads), known, report)
    train = task.local.train
    count = min(LOADED_SAMPLES, len(train))
    started = time.perf_counter()
    batch = task.batch(train, range(count))
    figures.note("load", (time.perf_counter() - started) / count)
    value = torch.from_numpy(np.resize(batch, (FILL_BATCH, *batch.shape[1:])))
    parts = model.parts()
    _measure_forward(figures, parts, value)
    small = sum(block.flops for block in model.info.blocks) < WORTH_FLOPS
    limit = memory_limit()
    affords = small or limit is None or limit >= CHOICE_BYTES
    if (
        figures.has("forward")
        and not figures.prefix
        and affords
        and figures.clock.has(0.0 if small else CHOICE_SECONDS)
    ):
        figures.note(*fastest_prefix(task, model, value.numpy(), figures.prefix_seconds, threads))
    _measure_backward(figures, parts, _rows_within(limit, max(block.saved_bytes for block in model.info.blocks)))
    if figures.lacks("step", at_any_time=True):
        figures.note("step", _overhead_seconds(model))
        figures.note("read", _read_bytes())
    chosen = figures.prefix and figures.has("train")
    if chosen and figures.lacks(COMPLETE) and figures.clock.has(0.0 if small else TRACING_SECONDS):
        figures.note("trace", _trace_seconds(task, model))
        nbytes = engine_bytes(model, figures.prefix, value.numpy(), threads)  # last: it slows what follows
        figures.note("fill peak", max(figures.by_name["fill peak"], nbytes))
        figures.note(COMPLETE, 1.0)
    return rates_from(model.info, figures.by_name)


class _Figures:
    """What was measured so far.

    Attributes:
        by_name: The figures.
        clock: Whether there is time for more.
        model: The model.

    Args:
        model: See above.
        clock: See above.
        known: Figures of earlier calls.
        report: Receives each new figure.
    """

    def __init__(self, model: OpenModel, clock: Clock, known: Mapping[str, float], report: Report) -> None:
        self.by_name, self.clock = dict(known), clock
        self.model, self._blocks, self._report = model, model.info.num_blocks, report

    def note(self, name: str, value: float) -> None:
        """Keep a figure, and report it."""
        self.by_name[name] = value
        self._report({"figure": name, "value": value})

    def lacks(self, name: str, *, at_any_time: bool = False) -> bool:
        """Return whether a figure is not known yet, and there is time to measure it."""
        return name not in self.by_name and (at_any_time or self.clock.has(0.0))

    def has(self, kind: str) -> bool:
        """Return whether the figures of all blocks are known, forward or of training."""
        return all(f"{kind} {index}" in self.by_name for index in range(self._blocks))

    @property
    def prefix(self) -> str:
        """The engine that was chosen for the prefix; empty before."""
        return next((name.removeprefix(PREFIX) for name in self.by_name if name.startswith(PREFIX)), "")

    @property
    def prefix_seconds(self) -> float:
        """PyTorch's seconds in fp32 for a batch, up to the last cut."""
        return FILL_BATCH * sum(self.by_name[f"forward {index}"] for index in range(self._blocks - 1))


def _measure_forward(figures: _Figures, parts: Sequence[nn.Module], batch: torch.Tensor) -> None:
    """Measure each block's forward pass, and with all of them the memory of a filling pass and the latency.

    Args:
        figures: Receives them.
        parts: The blocks.
        batch: Samples, float32 [`FILL_BATCH`, ...].
    """
    meter, info = PeakMeter(), figures.model.info
    folded = [fast(part) if isinstance(part, fx.GraphModule) else part for part in parts]
    run_before = len(figures.by_name)
    for index, part in enumerate(folded):
        if figures.lacks(f"forward {index}"):
            inputs = _made_up(info.blocks[index], FILL_BATCH)
            with torch.inference_mode():
                figures.note(f"forward {index}", timed(partial(part, inputs), figures.clock) / FILL_BATCH)
    if figures.has("forward") and figures.lacks("fill peak"):
        if len(figures.by_name) - run_before < len(folded):  # an earlier process ran the others
            chain_seconds(folded, batch)
        figures.note("fill peak", meter.peak_bytes() + unscaled_bytes(info))
    if figures.lacks("latency"):
        figures.note("latency", sum(chain_seconds(folded, batch[:1])))


def _measure_backward(figures: _Figures, parts: Sequence[nn.Module], rows: int) -> None:
    """Measure each block's forward and backward pass on so many samples."""
    for index, part in enumerate(parts):
        if figures.lacks(f"train {index}"):
            channels_last(part)
            leaf = _made_up(figures.model.info.blocks[index], rows).requires_grad_()
            figures.note(f"train {index}", timed(partial(_step, part, leaf), figures.clock) / rows)


def _made_up(block: BlockInfo, rows: int) -> torch.Tensor:
    """Return inputs of a block: how long it takes does not depend on their values."""
    return spatial(torch.rand(rows, *block.in_shape))


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
    """Return whether the planned executor would be used for some tail of a model, so that its step is traced."""
    return LARGEST_BATCH * sum(block.saved_bytes for block in model.blocks) >= PLANNED_BYTES


def _trace_seconds(task: Task, model: OpenModel) -> float:
    """Return the seconds to trace and plan a step, per block of the tail; 0 where no tail would be, or can be.

    Tracing takes as long as there are operators, whatever their sizes: the later half of the model stands for all.
    """
    blocks = model.info.blocks
    if not steps_are_traced(model.info):
        return 0.0
    cut = len(blocks) // 2
    shape, outputs = blocks[cut].in_shape, model.info.outputs
    started = time.perf_counter()
    try:
        step = trace(
            model.tail(cut),
            RecipePlan(),
            loss=torch_loss(task.targets),
            input_shape=shape,
            outputs=outputs,
            batch_size=FILL_BATCH,
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

    seconds = timed(step)
    for parameter in parameters:
        parameter.grad = None
    return seconds + 1e-3


def _read_bytes() -> float:
    """Return the bytes of features a second that are read back and widened to float32."""
    stored = np.ones((64, 96 * 14 * 14), np.float16)
    seconds = timed(lambda: stored.astype(np.float32).tobytes())
    return stored.size * 4 / max(seconds, 1e-6) / 4
