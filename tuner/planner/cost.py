"""Seconds and bytes of a plan: FLOPs and tensor sizes, times rates measured on this device."""

import math
from dataclasses import dataclass, replace

from tuner.heads import head_macs, head_parameters
from tuner.plan import ModelInfo, TrialPlan
from tuner.results.records import Estimate

FLOAT_BYTES = 4
#: Copies of every trained weight, by optimiser: gradient, plus momentum or two moments.
STATE_COPIES = {"sgd": 2, "adam": 3, "adamw": 3}
#: Backward costs the gradient of the weights and of the input, each one forward.
TRAIN_PASSES = 3.0
FILL_BATCH = 16
#: Of prefix outputs that a filling pass may hold until the scales are known.
HELD_BYTES = 32_000_000
#: Width of the codes that a filling pass writes; fewer bits are requantised from them.
CODED_BITS = 8
NOMINAL_FLOPS = 1e10
#: Activations, of a batch, from which on the planned executor pays.
PLANNED_BYTES = 64_000_000
#: Width of the features that a teacher answers on.
EXACT_BITS = 32


@dataclass(frozen=True, slots=True)
class Rates:
    """What this device does, measured on the model at hand.

    Attributes:
        forward_seconds: Of each block's forward pass, per sample, in batches of `FILL_BATCH`.
        train_seconds: Of each block's forward and backward pass, per sample.
        step_seconds: Fixed cost of one training step.
        load_seconds: To read and decode one sample.
        read_bytes: A second, of stored features decoded.
        scratch_bytes: What the library holds beside the tensors of a step.
        fill_peak_bytes: High-water mark of a filling pass above the resting process.
        prefix_kind: The engine that computes the prefix fastest here.
        prefix_ratio: Its seconds over the blocks' own forward seconds.
        latency_seconds: Of one sample through the whole model, alone; 0 where it was not measured.
        trace_seconds: To trace and plan one block of a tail, once a trial that the planned executor runs.
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
    trace_seconds: float = 0.0


def nominal(model: ModelInfo) -> Rates:
    """Return made-up rates that depend on the model alone: FLOPs instead of clocks, for ``--deterministic``."""
    forward = tuple(block.flops / NOMINAL_FLOPS for block in model.blocks)
    widest = max(math.prod(block.in_shape) for block in model.blocks)
    return Rates(
        forward_seconds=forward,
        train_seconds=tuple(TRAIN_PASSES * one for one in forward),
        step_seconds=1e-3,
        load_seconds=1e-3,
        read_bytes=4e8,
        scratch_bytes=8_000_000,
        fill_peak_bytes=HELD_BYTES + FILL_BATCH * 4 * widest * FLOAT_BYTES,
    )


def widths(plan: TrialPlan) -> dict[int, int]:
    """Return the bits of the stored values that training reads, by split.

    Exits that are trained alone have a teacher, the final head, whose answers come from exact features.
    """
    taps = {one.block: plan.cache.bits for one in plan.heads.exits}
    return taps | ({plan.split: plan.cache.bits} if plan.trainable else {plan.model.num_blocks - 1: EXACT_BITS})


def records(plan: TrialPlan) -> tuple[tuple[int, int], ...]:
    """Return the training records that the prefix pass writes for a plan, as (split, bits), ascending.

    Codes of 4, 2 and 1 bits are requantised from the 8-bit ones: only 8, 16 and 32 bits need the prefix.
    """
    return tuple(sorted((split, max(CODED_BITS, bits)) for split, bits in widths(plan).items()))


def mean_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of a forward pass through all blocks."""
    return sum(block.flops for block in plan.model.blocks)


def head_flops(plan: TrialPlan) -> tuple[int, ...]:
    """Return the forward FLOPs of each side head, per sample."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    return tuple(2 * head_macs(blocks[one.block].in_shape, one.channels, outputs) for one in plan.heads.exits)


def estimate(plan: TrialPlan, rates: Rates, missing: int | None = None) -> Estimate:
    """Estimate a plan.

    Args:
        plan: To estimate.
        rates: Measured on this device.
        missing: Samples (training and validation) whose features are not stored yet; None where all are.
    """
    spend = training_seconds(plan, rates) + scoring_seconds(plan, rates)
    if missing is not None:
        spend += missing * fill_seconds(plan, rates)
    return Estimate(train_seconds(plan, rates), spend, peak_bytes(plan, rates), storage_bytes(plan))


def train_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the cost of the plan on an empty store: filling for the training records, and the epochs."""
    filling = plan.train_samples * fill_seconds(plan, rates) if plan.cached else 0.0
    return filling + training_seconds(plan, rates)


def fill_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to decode one sample and run the prefix on it."""
    return rates.load_seconds + rates.prefix_ratio * sum(rates.forward_seconds[: plan.split])


def training_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of tracing the step, where that is done, and of all epochs; without scoring."""
    samples = plan.train_samples
    steps = math.ceil(samples / plan.recipe.batch_size) * plan.recipe.micro_batches
    rounds = 1 if plan.trainable else 0
    each = rounds * (sum(rates.train_seconds[plan.split :]) + _source_seconds(plan, rates))
    if plan.heads.exits:
        rounds += 1
        each += TRAIN_PASSES * _head_seconds(plan, rates) + _taps_seconds(plan, rates)
    epochs = plan.recipe.epochs * (samples * each + rounds * steps * rates.step_seconds)
    return tracing_seconds(plan, rates) + epochs


def tracing_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds before the planned executor's first step; micro-batches have two forms of step."""
    forms = 2 if plan.recipe.micro_batches > 1 else 1
    return forms * rates.trace_seconds * len(plan.model.blocks[plan.split :]) if worth_planning(plan) else 0.0


def scoring_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of scoring: the local samples once an epoch where that can stop it, everything at the end."""
    rounds = plan.recipe.epochs if plan.recipe.patience else 1
    samples = plan.task.local_val * rounds + plan.task.global_val
    heads = _head_seconds(plan, rates) + _taps_seconds(plan, rates)
    return samples * (sum(rates.forward_seconds[plan.split :]) + _source_seconds(plan, rates) + heads)


def training_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of the whole trial on an empty store; backward counts two forward passes."""
    tail = sum(block.flops for block in plan.model.blocks[plan.split :])
    prefix = sum(block.flops for block in plan.model.blocks[: plan.split])
    passes = 1 if plan.cached else plan.recipe.epochs
    return int(plan.train_samples * (passes * prefix + plan.recipe.epochs * TRAIN_PASSES * tail))


def peak_bytes(plan: TrialPlan, rates: Rates) -> int:
    """Return the bytes above the resting process: optimiser state, gradients, saved activations, batch, scratch."""
    tail = plan.model.blocks[plan.split :]
    state = sum(block.parameters for block in tail) * FLOAT_BYTES * STATE_COPIES[plan.recipe.optimiser]
    batch = min(plan.recipe.part_size, max(1, plan.train_samples))
    activations = kept_bytes(plan)
    inputs = 3 * batch * math.prod(tail[0].in_shape if tail else (1,)) * FLOAT_BYTES
    training = state + activations + inputs + rates.scratch_bytes
    prefix = rates.fill_peak_bytes if plan.split else 0
    heads = _heads_bytes(plan, batch) + rates.scratch_bytes
    return int(max(training, heads, prefix) if plan.cached else max(training, heads) + prefix)


def kept_bytes(plan: TrialPlan) -> int:
    """Return the bytes that PyTorch's eager loop keeps of a batch, or of a micro-batch, for its backward pass."""
    batch = min(plan.recipe.part_size, max(1, plan.train_samples))
    return batch * sum(block.saved_bytes for block in plan.model.blocks[plan.split :])


def worth_planning(plan: TrialPlan) -> bool:
    """Return whether a trial runs its steps by the planned executor, as far as it can be traced.

    Tracing takes seconds and tens of MB: where the eager loop keeps less than `PLANNED_BYTES`, that is not won back.
    Tails whose shapes change while they train would have to be traced again and again.
    """
    return not plan.shape and kept_bytes(plan) >= PLANNED_BYTES


def storage_bytes(plan: TrialPlan) -> int:
    """Return the bytes on disk: stored features, and the trained weights."""
    return feature_bytes(plan) + weight_bytes(plan)


def feature_bytes(plan: TrialPlan) -> int:
    """Return the bytes of stored features: training records at the plan's width, validation records at 16 bits.

    Records of 4, 2 and 1 bits are made from 8-bit ones, which stay beside them.
    """
    if not plan.cached:
        return 0
    values = [math.prod(block.in_shape) for block in plan.model.blocks]
    train = sum(
        math.ceil(values[cut] * width / 8)
        for cut, bits in widths(plan).items()
        for width in {bits, max(CODED_BITS, bits)}
    )
    scored = plan.task.local_val + plan.task.global_val
    if plan.heads.exits:
        scored += plan.task.local_train // 5  # the calibration samples
    return plan.train_samples * train + scored * sum(values[cut] * 2 for cut in plan.cuts)


def weight_bytes(plan: TrialPlan) -> int:
    """Return the bytes of the trained weights, which a trial writes and the front keeps."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    heads = sum(head_parameters(blocks[one.block].in_shape, one.channels, outputs) for one in plan.heads.exits)
    return FLOAT_BYTES * (heads + sum(block.parameters for block in blocks[plan.split :]))


def corrected(one: Estimate, seconds_ratio: float, bytes_ratio: float) -> Estimate:
    """Return the estimate scaled by what finished trials took beside what was expected of them."""
    return replace(
        one,
        train_seconds=one.train_seconds * seconds_ratio,
        spend_seconds=one.spend_seconds * seconds_ratio,
        peak_bytes=int(one.peak_bytes * bytes_ratio),
    )


def _source_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to get one sample's input of the tail."""
    if not plan.cached:
        return fill_seconds(plan, rates)
    return (
        math.prod(plan.model.blocks[min(plan.split, plan.model.num_blocks - 1)].in_shape)
        * FLOAT_BYTES
        / rates.read_bytes
    )


def _taps_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to get one sample's inputs of all side heads."""
    if not plan.heads.exits or not plan.cached:
        return fill_seconds(plan, rates) if plan.heads.exits else 0.0
    values = sum(math.prod(plan.model.blocks[one.block].in_shape) for one in plan.heads.exits)
    return values * FLOAT_BYTES / rates.read_bytes


def _head_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of all side heads' forward pass, per sample, at the model's own rate."""
    return sum(head_flops(plan)) * sum(rates.forward_seconds) / max(1, mean_flops(plan))


def _heads_bytes(plan: TrialPlan, batch: int) -> int:
    """Return what training the side heads holds: their state, their inputs, and what they keep for backward."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    state = inputs = 0
    for one in plan.heads.exits:
        shape = blocks[one.block].in_shape
        state += head_parameters(shape, one.channels, outputs) * FLOAT_BYTES * STATE_COPIES[plan.recipe.optimiser]
        kept = 3 * one.channels * math.prod(-(-extent // 2) for extent in shape[1:])  # convolution, norm, activation
        inputs += 3 * math.prod(shape) + kept
    return state + batch * inputs * FLOAT_BYTES
