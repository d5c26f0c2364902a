"""Seconds and bytes of a plan: FLOPs and tensor sizes times the rates measured on this device."""

import math
from dataclasses import dataclass, replace

from tuner.plan.heads import head_macs, head_parameters
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FLOAT_BYTES, TRAIN_PASSES, Rates

#: Tensors of the size of a trained weight, by optimiser: its gradient, and momentum or two moments.
STATE_COPIES = {"sgd": 2, "adam": 3, "adamw": 3}
#: The same of an optimiser that a plugin adds: of most, at most.
ADDED_COPIES = 3
#: Width, in bits, of the codes that a filling pass writes; narrower ones are requantised from them.
CODED_BITS = 8
#: Bytes kept of a batch for the backward pass from which on the planned executor pays.
PLANNED_BYTES = 64_000_000
#: Width, in bits, of the features that a teacher answers on.
EXACT_BITS = 32


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected cost of a plan on this device.

    Attributes:
        train_seconds: Cost on an empty store: filling and epochs.
        spend_seconds: Cost that is still to be paid: epochs, scoring, and filling of features not stored yet.
        peak_bytes: Memory above the resting process.
        storage_bytes: Size of stored features and trained weights.
    """

    train_seconds: float
    spend_seconds: float
    peak_bytes: int
    storage_bytes: int


def state_copies(optimiser: str) -> int:
    """Return how many tensors of a trained weight's size an optimiser needs, the gradient among them."""
    return STATE_COPIES.get(optimiser, ADDED_COPIES)


def feature_bits(plan: TrialPlan) -> dict[int, int]:
    """Return the width of the stored values that training reads, in bits by cut.

    Exits that are trained alone have a teacher, the final head, whose answers come from exact features.
    """
    exits = {exit_.block: plan.cache.bits for exit_ in plan.heads.exits}
    return exits | ({plan.split: plan.cache.bits} if plan.trainable else {plan.model.num_blocks - 1: EXACT_BITS})


def feature_records(plan: TrialPlan) -> tuple[tuple[int, int], ...]:
    """Return the feature records that the prefix pass writes for training, as pairs of cut and bits, ascending.

    Codes of 4, 2 and 1 bits are requantised from the 8-bit ones: only 8, 16 and 32 bits need the prefix.
    """
    return tuple(sorted((cut, max(CODED_BITS, bits)) for cut, bits in feature_bits(plan).items()))


def forward_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of a forward pass through all blocks."""
    return sum(block.flops for block in plan.model.blocks)


def head_flops(plan: TrialPlan) -> tuple[int, ...]:
    """Return the forward FLOPs of each side head, per sample."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    return tuple(2 * head_macs(blocks[exit_.block].in_shape, exit_.channels, outputs) for exit_ in plan.heads.exits)


def estimate(plan: TrialPlan, rates: Rates, missing: int | None = None) -> Estimate:
    """Estimate a plan.

    Args:
        plan: Plan to estimate.
        rates: Rates of this device.
        missing: Number of samples (training and validation) whose features are not stored yet; None where all are.
    """
    spend = loop_seconds(plan, rates) + scoring_seconds(plan, rates)
    if missing is not None:
        spend += missing * fill_seconds(plan, rates)
    return Estimate(train_seconds(plan, rates), spend, peak_bytes(plan, rates), storage_bytes(plan))


def train_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds on an empty store: filling of the training samples, and the epochs."""
    filling = plan.train_samples * fill_seconds(plan, rates) if plan.cached else 0.0
    return filling + loop_seconds(plan, rates)


def fill_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to decode one sample and run the prefix on it."""
    return rates.load_seconds + rates.prefix_ratio * sum(rates.forward_seconds[: plan.split])


def loop_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of tracing, where a step is traced, of a teacher's answers, and of all epochs; no scoring."""
    samples = plan.train_samples
    steps = math.ceil(samples / plan.recipe.batch_size) * plan.recipe.micro_batches
    loops = 1 if plan.trainable else 0
    sample_seconds = loops * (sum(rates.train_seconds[plan.split :]) + _source_seconds(plan, rates))
    if plan.heads.exits:
        loops += 1
        sample_seconds += TRAIN_PASSES * _head_seconds(plan, rates) + _exit_source_seconds(plan, rates)
    epoch_seconds = samples * sample_seconds + loops * steps * rates.step_seconds
    teacher_seconds = 0.0
    if plan.has_teacher:
        teacher_seconds = samples * (sum(rates.forward_seconds[plan.split :]) + _source_seconds(plan, rates))
    return tracing_seconds(plan, rates) + teacher_seconds + plan.recipe.epochs * epoch_seconds


def tracing_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds before the planned executor's first step; micro-batches have two forms of step."""
    if not worth_planning(plan):
        return 0.0
    forms = 2 if plan.recipe.micro_batches > 1 else 1
    return forms * rates.trace_seconds * plan.trainable


def scoring_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of scoring: all samples at the end, the local ones after every epoch that may be the last."""
    times = plan.recipe.epochs if plan.recipe.patience else 1
    samples = plan.local_scored * times + plan.global_scored
    heads = _head_seconds(plan, rates) + _exit_source_seconds(plan, rates)
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
    state = sum(block.parameters for block in tail) * FLOAT_BYTES * state_copies(plan.recipe.optimiser)
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
    """Return whether a trial runs its steps by the planned executor, provided the tail can be traced.

    Tracing takes seconds and tens of MB, which do not pay where the eager loop keeps less than `PLANNED_BYTES`. Tails
    that change while they train would have to be traced again and again, and updates of a plugin's optimiser cannot be.
    """
    return plan.traits.traceable and plan.recipe.optimiser in STATE_COPIES and kept_bytes(plan) >= PLANNED_BYTES


def storage_bytes(plan: TrialPlan) -> int:
    """Return the bytes on disk: stored features and trained weights."""
    return feature_bytes(plan) + weight_bytes(plan)


def feature_bytes(plan: TrialPlan) -> int:
    """Return the bytes of stored features: training records at the plan's width, validation records at 16 bits.

    Records of 4, 2 and 1 bits are made from 8-bit ones, which are kept.
    """
    if not plan.cached:
        return 0
    values = [math.prod(block.in_shape) for block in plan.model.blocks]
    train = sum(
        math.ceil(values[cut] * width / 8)
        for cut, bits in feature_bits(plan).items()
        for width in {bits, max(CODED_BITS, bits)}
    )
    scored = plan.local_scored + plan.global_scored
    if plan.heads.exits:
        scored += plan.local_samples // 5  # the calibration samples
    return plan.train_samples * train + scored * sum(values[cut] * 2 for cut in plan.cuts)


def weight_bytes(plan: TrialPlan) -> int:
    """Return the bytes of the trained weights, which a trial writes and a run keeps for its front."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    heads = sum(head_parameters(blocks[exit_.block].in_shape, exit_.channels, outputs) for exit_ in plan.heads.exits)
    return FLOAT_BYTES * (heads + sum(block.parameters for block in blocks[plan.split :]))


def corrected(expected: Estimate, seconds_ratio: float, bytes_ratio: float) -> Estimate:
    """Return an estimate scaled by the ratios of measured to expected cost of finished trials."""
    return replace(
        expected,
        train_seconds=expected.train_seconds * seconds_ratio,
        spend_seconds=expected.spend_seconds * seconds_ratio,
        peak_bytes=int(expected.peak_bytes * bytes_ratio),
    )


def _source_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to get one sample's input of the tail."""
    if not plan.cached:
        return fill_seconds(plan, rates)
    return math.prod(plan.source_shape) * FLOAT_BYTES / rates.read_bytes


def _exit_source_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to get one sample's inputs of all side heads."""
    if not plan.heads.exits or not plan.cached:
        return fill_seconds(plan, rates) if plan.heads.exits else 0.0
    values = sum(math.prod(plan.model.blocks[exit_.block].in_shape) for exit_ in plan.heads.exits)
    return values * FLOAT_BYTES / rates.read_bytes


def _head_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of all side heads' forward pass, per sample, at the model's own rate."""
    return sum(head_flops(plan)) * sum(rates.forward_seconds) / max(1, forward_flops(plan))


def _heads_bytes(plan: TrialPlan, batch: int) -> int:
    """Return the bytes of training the side heads: their state, their inputs, and what they keep for backward."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    state = values = 0
    for exit_ in plan.heads.exits:
        shape, channels = blocks[exit_.block].in_shape, exit_.channels
        state += head_parameters(shape, channels, outputs) * FLOAT_BYTES * state_copies(plan.recipe.optimiser)
        halved = math.prod(math.ceil(extent / 2) for extent in shape[1:])
        values += 3 * math.prod(shape) + 3 * channels * halved  # outputs of convolution, norm and activation
    return state + batch * values * FLOAT_BYTES
