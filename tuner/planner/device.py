"""Speed and memory of this device, measured on the model at hand or derived from its FLOPs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.plan.info import ModelInfo

FLOAT_BYTES = 4
#: A training pass in forward passes: forward, the gradient of the weights, and that of the input.
TRAIN_PASSES = 3.0
#: Tensors of the size of a trained weight, by optimiser: its gradient, and momentum or two moments.
STATE_COPIES = {"sgd": 2, "adam": 3, "adamw": 3}
#: The same for an optimiser that a plugin adds: an upper bound.
ADDED_COPIES = 3
#: Samples that a filling pass runs at once.
FILL_BATCH = 16
#: Bytes of prefix outputs that a filling pass may hold until their scales are known.
UNSCALED_BYTES = 32_000_000
#: Samples of each domain that scales are computed from.
CALIBRATION_SAMPLES = 256
#: Time to trace and plan one block, where it was not measured.
TRACE_SECONDS = 0.05
#: The figure that a measuring ends with.
COMPLETE = "complete"
#: What a run notes where `Rates.latency_busy`.
BUSY = "the time of a prediction was measured on a busy machine"
#: FLOPs per second of the made-up device of `nominal`.
NOMINAL_FLOPS = 1e10


def state_copies(optimiser: str) -> int:
    """Return how many tensors of a trained weight's size an optimiser needs, the gradient among them."""
    return STATE_COPIES.get(optimiser, ADDED_COPIES)


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """What a fresh process takes for its first training step, by cut; empty where it was not measured.

    Attributes:
        library_bytes: Memory of the libraries' code and buffers that a step of the tail touches.
        seconds: Time of the first step of the tail in addition to that of the next one.
    """

    library_bytes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of this device, measured on the model at hand.

    Attributes:
        forward_seconds: Time of each block's forward pass, per sample, in batches of `FILL_BATCH`.
        train_seconds: Time of each block's forward and backward pass, per sample.
        step_seconds: Fixed time of one training step.
        load_seconds: Time to read and decode one sample.
        read_bytes: Bytes of stored features, decoded, per second.
        scratch_bytes: Memory of a trial in addition to the tensors of a step and to what its first step takes.
        fill_peak_bytes: Peak memory of a filling pass above the resting process.
        prefix_kind: Engine that computes the prefix fastest.
        prefix_ratio: Its time relative to the blocks' forward passes.
        latency_seconds: Time of a single sample through the whole model; 0 where it was not measured.
        latency_busy: Whether that differed so much between repeats that the device did other work meanwhile.
        trace_seconds: Time to trace and plan one block of a tail, once per trial that the planned executor runs.
        complete: Whether there was time to measure all of it; else some of it is derived.
        first: What a fresh process takes in addition.
        sizes: The rates at other sizes of the input, by these.
    """

    forward_seconds: tuple[float, ...]
    train_seconds: tuple[float, ...]
    step_seconds: float
    load_seconds: float
    read_bytes: float
    scratch_bytes: int
    fill_peak_bytes: int
    prefix_kind: str = "torch-fp32"
    prefix_ratio: float = 1.0
    latency_seconds: float = 0.0
    latency_busy: bool = False
    trace_seconds: float = 0.0
    complete: bool = True
    first: FirstSteps = FirstSteps()
    sizes: tuple[tuple[int, "Rates"], ...] = ()

    def at(self, size: int) -> "Rates":
        """Return the rates at a size of the input; these where they are of no other."""
        return next((rates for own, rates in self.sizes if own == size), self)


def unscaled_bytes(model: ModelInfo) -> int:
    """Return the bytes of prefix outputs that a filling pass holds at most, whichever cuts it fills."""
    outputs = sum(math.prod(block.in_shape) for block in model.blocks[1:])
    return min(UNSCALED_BYTES, 2 * CALIBRATION_SAMPLES * outputs * FLOAT_BYTES)


def nominal(model: ModelInfo) -> Rates:
    """Return made-up rates that depend on the model alone, for ``--deterministic``: FLOPs instead of clocks."""
    forward = tuple(block.flops / NOMINAL_FLOPS for block in model.blocks)
    widest = max(math.prod(block.in_shape) for block in model.blocks)
    return Rates(
        forward_seconds=forward,
        train_seconds=tuple(TRAIN_PASSES * seconds for seconds in forward),
        step_seconds=1e-3,
        load_seconds=1e-3,
        read_bytes=4e8,
        scratch_bytes=8_000_000,
        fill_peak_bytes=UNSCALED_BYTES + FILL_BATCH * 4 * widest * FLOAT_BYTES,
    )


def rates_from(model: ModelInfo, figures: Mapping[str, float]) -> Rates:
    """Return the rates of a device that was measured in part.

    Other blocks are computed from their FLOPs at the pace of those that were; backward passes from forward ones.

    Args:
        model: The model.
        figures: What was measured, by name: ``"forward 3"`` and ``"train 3"`` are the seconds of a block, ``"load"``,
            ``"step"``, ``"read"``, ``"fill peak"``, ``"latency"`` and ``"trace"`` the fields of `Rates` that begin so;
            ``"prefix KIND"`` is the ratio of the engine that was chosen, ``"pace"`` that of seconds to made-up ones
            where no block was measured, and `COMPLETE` says that this is all.
    """
    made_up = nominal(model)
    known = [index for index in range(model.num_blocks) if f"forward {index}" in figures]
    expected = sum(made_up.forward_seconds[index] for index in known)
    measured = sum(figures[f"forward {index}"] for index in known)
    pace = measured / expected if expected else figures.get("pace", 1.0)
    forward = [figures.get(f"forward {index}", pace * taken) for index, taken in enumerate(made_up.forward_seconds)]
    kind, ratio = next(
        ((name.removeprefix("prefix "), value) for name, value in figures.items() if name.startswith("prefix ")),
        (made_up.prefix_kind, made_up.prefix_ratio),
    )
    return replace(
        made_up,
        forward_seconds=tuple(forward),
        train_seconds=tuple(figures.get(f"train {index}", TRAIN_PASSES * taken) for index, taken in enumerate(forward)),
        step_seconds=figures.get("step", made_up.step_seconds),
        load_seconds=figures.get("load", made_up.load_seconds),
        read_bytes=figures.get("read", made_up.read_bytes),
        fill_peak_bytes=int(figures.get("fill peak", made_up.fill_peak_bytes)),
        prefix_kind=kind,
        prefix_ratio=ratio,
        latency_seconds=figures.get("latency", 0.0),
        trace_seconds=figures.get("trace", TRACE_SECONDS),
        complete=COMPLETE in figures,
    )
