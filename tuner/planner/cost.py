"""Seconds and bytes of a plan: FLOPs and tensor sizes times the rates measured on this device."""

import math
from dataclasses import dataclass

from tuner.plan.trial import TrialPlan
from tuner.planner.device import FLOAT_BYTES, STATE_COPIES, TRAIN_PASSES, Rates, state_copies, unscaled_bytes
from tuner.planner.exits import START_RECIPE, head_bytes, heads_bytes, start_bytes, start_samples, sums_flops
from tuner.planner.flops import forward_flops, head_flops
from tuner.planner.solving import solving_bytes
from tuner.store.sizes import scale_bytes

#: To build the tail, its optimiser and its threads.
START_SECONDS = 0.03
#: Width, in bits, of the codes that a filling pass writes; narrower ones are requantised from them.
CODED_BITS = 8
#: Bytes kept of a batch for the backward pass from which on the planned executor pays where memory is limited; where
#: it is not, so many times as many. The executor takes two thirds of the memory, and up to twice the time.
PLANNED_BYTES = 64_000_000
UNLIMITED = 16
#: Quantising the prefix takes as long as filling so many samples (MobileNetV2 at 160 pixels: 10 s, 5 ms a sample).
QUANTISING_SAMPLES = 2000
#: Width, in bits, of the features that a teacher answers on.
EXACT_BITS = 32


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected cost of a plan on this device.

    Attributes:
        train_seconds: Cost of training on stored features: what exits begin with, the epochs, solving for the head.
        spend_seconds: Cost that is still to be paid: epochs, scoring, and filling of features not stored yet.
        peak_bytes: Memory above the resting process.
        storage_bytes: Size of stored features and trained weights.
    """

    train_seconds: float
    spend_seconds: float
    peak_bytes: int
    storage_bytes: int


def feature_bits(plan: TrialPlan) -> dict[int, int]:
    """Return the width of the stored values that training reads, in bits by cut.

    Exits that are trained alone have a teacher, the final head, whose answers come from exact features.
    """
    exits = {exit_.block: plan.cache.bits for exit_ in plan.heads.exits if exit_.block <= plan.cuts[-1]}
    return exits | ({plan.split: plan.cache.bits} if plan.trainable else {plan.model.num_blocks - 1: EXACT_BITS})


def feature_records(plan: TrialPlan) -> tuple[tuple[int, int], ...]:
    """Return the feature records that the prefix pass writes for training, as pairs of cut and bits, ascending.

    Codes of 4, 2 and 1 bits are requantised from the 8-bit ones: only 8, 16 and 32 bits need the prefix.
    """
    return tuple(sorted((cut, max(CODED_BITS, bits)) for cut, bits in feature_bits(plan).items()))


def estimate(plan: TrialPlan, rates: Rates, missing: int | None = None) -> Estimate:
    """Estimate a plan.

    Args:
        plan: Plan to estimate.
        rates: Rates of this device.
        missing: Number of samples (training and validation) whose features are not stored yet; None where all are.
    """
    spend = trial_seconds(plan, rates) + unpaid_seconds(plan, rates, missing or 0)
    return Estimate(train_seconds(plan, rates), spend, peak_bytes(plan, rates), storage_bytes(plan))


def trial_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of all trainings that judge a plan, and of their scoring."""
    return loops_seconds(plan, rates) + sum(scoring_seconds(one, rates) for one in plan.trainings)


def loops_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of the epochs of all trainings that judge a plan."""
    return sum(loop_seconds(one, rates) for one in plan.trainings)


def train_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of training on stored features: what exits begin with, the epochs, solving for the head.

    Filling the store serves all plans of a run, and is a cost of the run.
    """
    return start_seconds(plan, rates) + loop_seconds(plan, rates)


def unpaid_seconds(plan: TrialPlan, rates: Rates, missing: int) -> float:
    """Return the seconds to fill what a study has not filled yet, and to learn what exits begin with.

    Args:
        plan: The plan.
        rates: Rates of this device.
        missing: Number of samples whose features are not stored yet; where it is 0, exits' starts are stored too.
    """
    start = start_seconds(plan, rates) if missing or not plan.cached else 0.0
    return missing * fill_seconds(plan, rates) + start


def start_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to learn what exits begin with from stored features: once in a study."""
    source, count = _exit_source_seconds(plan, rates), start_samples(plan)
    once = source + sum(rates.forward_seconds[plan.cuts[-1] :]) + _seconds_of(sums_flops(plan), plan, rates)
    epochs = 0 if plan.heads.ridge else START_RECIPE.epochs
    steps = epochs * math.ceil(count / START_RECIPE.batch_size) * rates.step_seconds
    return count * (once + epochs * (source + TRAIN_PASSES * _head_seconds(plan, rates))) + steps


def fill_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to decode one sample and run the prefix on it."""
    return rates.load_seconds + rates.prefix_ratio * sum(rates.forward_seconds[: plan.split])


def loop_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of all epochs and of solving for the head again.

    Before them, samples are chosen, a teacher answers and steps are traced.
    """
    each = sum(rates.train_seconds[plan.split :]) + _source_seconds(plan, rates) if plan.trainable else 0.0
    once = 0.0
    if plan.heads.exits:
        heads = TRAIN_PASSES * _head_seconds(plan, rates)
        alone = heads + _exit_source_seconds(plan, rates)
        each += (heads if plan.heads.joint else 0.0) + (0.0 if plan.heads.ridge else alone)
        once = alone if plan.heads.ridge else 0.0
    once += _solving_seconds(plan, rates)
    samples = plan.train_samples * (once + plan.recipe.epochs * each)
    return ready_seconds(plan, rates) + steps_seconds(plan, rates) + samples


def ending_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds after the last epoch: of solving for the head again, and of scoring."""
    return plan.train_samples * _solving_seconds(plan, rates) + scoring_seconds(plan, rates)


def _solving_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to pass one training sample through the trained tail; 0 where no head is solved for again."""
    if not plan.recipe.solve_again or not plan.trainable:
        return 0.0
    return sum(rates.forward_seconds[plan.split :]) + _source_seconds(plan, rates)


def ready_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds before the second step: of choosing samples, a teacher's answers, tracing, a cold start."""
    by_cut = rates.first.seconds
    cold = START_SECONDS + by_cut[min(plan.split, len(by_cut) - 1)] if by_cut else 0.0
    return cold + choosing_seconds(plan, rates) + teacher_seconds(plan, rates) + tracing_seconds(plan, rates)


def steps_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds that the steps of all epochs take whatever their samples."""
    loops = bool(plan.trainable) + bool(plan.heads.exits)
    steps = math.ceil(plan.train_samples / plan.recipe.batch_size) * plan.recipe.micro_batches
    return plan.recipe.epochs * loops * steps * rates.step_seconds


def teacher_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of the given model's answers to all training samples, where a loss term reads them."""
    if not plan.has_teacher:
        return 0.0
    return plan.train_samples * (sum(rates.forward_seconds[plan.split :]) + _source_seconds(plan, rates))


def choosing_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to get the features of all candidates for mixing in, from the store or by the prefix."""
    if plan.data.edit is None:
        return 0.0
    cut = plan.model.blocks[plan.cuts[-1]].in_shape
    read = math.prod(cut) * FLOAT_BYTES / rates.read_bytes
    return plan.pool_samples * (read if plan.cached else fill_seconds(plan, rates))


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


def peak_bytes(plan: TrialPlan, rates: Rates) -> int:
    """Return the bytes above the resting process: of training, or of filling the store where that takes more."""
    training = training_bytes(plan, rates)
    return max(training, rates.fill_peak_bytes) if plan.cached and plan.split else training


def training_bytes(plan: TrialPlan, rates: Rates) -> int:
    """Return the bytes of training: `tensor_bytes` and `library_bytes`."""
    return tensor_bytes(plan, rates) + library_bytes(plan, rates)


def tensor_bytes(plan: TrialPlan, rates: Rates) -> int:
    """Return the bytes of training in tensors: optimiser state, gradients, saved activations, batch, the file's copy.

    Where nothing is stored, the prefix runs in the same process.
    """
    tail = plan.model.blocks[plan.split :]
    batch = min(plan.recipe.part_size, max(1, plan.train_samples))
    copies = state_copies(plan.recipe.optimiser) + bool(rates.first.library_bytes)  # nominal rates know no file
    state = sum(block.parameters for block in tail) * FLOAT_BYTES * copies + solving_bytes(plan)
    inputs = 3 * batch * math.prod(tail[0].in_shape if tail else (1,)) * FLOAT_BYTES
    tail_bytes, exits_bytes = state + kept_bytes(plan) + inputs, heads_bytes(plan, batch)
    if plan.heads.joint:  # they train with the tail; those in closed form are solved for when it is done
        tail_bytes += head_bytes(plan) * copies if plan.heads.ridge else exits_bytes
    both = max(tail_bytes, exits_bytes)
    return int(both + prefix_bytes(plan, rates))


def prefix_bytes(plan: TrialPlan, rates: Rates) -> int:
    """Return the bytes of tensors of a prefix that runs before every step; 0 where none does."""
    if not runs_prefix(plan):
        return 0
    if not rates.first.library_bytes:
        return rates.fill_peak_bytes
    return max(0, rates.fill_peak_bytes - unscaled_bytes(plan.model) - rates.first.library_bytes[0])


def library_bytes(plan: TrialPlan, rates: Rates) -> int:
    """Return the bytes of the libraries' code and buffers that a trial's process touches."""
    by_cut = rates.first.library_bytes or (0,)
    return rates.scratch_bytes + by_cut[0 if runs_prefix(plan) else min(plan.split, len(by_cut) - 1)]


def runs_prefix(plan: TrialPlan) -> bool:
    """Return whether frozen blocks run before every step, as their outputs are not stored."""
    return plan.split > 0 and not plan.cached


def kept_bytes(plan: TrialPlan) -> int:
    """Return the bytes that PyTorch's eager loop keeps of a batch, or of a micro-batch, for its backward pass."""
    batch = min(plan.recipe.part_size, max(1, plan.train_samples))
    return batch * sum(block.saved_bytes for block in plan.model.blocks[plan.split :])


def worth_planning(plan: TrialPlan) -> bool:
    """Return whether a trial runs its steps by the planned executor, provided the tail can be traced.

    Tracing takes seconds and tens of MB, which do not pay where the eager loop keeps less than `planned_from`. Tails
    that change while they train would have to be traced again and again, and updates of a plugin's optimiser cannot be.
    Exits in a tail that train with it are not part of a traced step.
    """
    if plan.heads.joint or not plan.traits.traceable or plan.recipe.optimiser not in STATE_COPIES:
        return False
    return kept_bytes(plan) >= planned_from(plan)


def planned_from(plan: TrialPlan) -> int:
    """Return the bytes kept of a batch from which on the planned executor pays."""
    return PLANNED_BYTES * (1 if plan.runtime.memory_bytes else UNLIMITED)


def storage_bytes(plan: TrialPlan) -> int:
    """Return the bytes on disk: stored features and trained weights."""
    return feature_bytes(plan) + weight_bytes(plan)


def feature_bytes(plan: TrialPlan) -> int:
    """Return the bytes of stored features: training records at the plan's width, validation records at 16 bits.

    What exits begin with is stored with them. Records of 4, 2 and 1 bits are made from 8-bit ones, which are kept.
    """
    if not plan.cached:
        return 0
    values = [math.prod(block.in_shape) for block in plan.model.blocks]
    train = sum(
        math.ceil(values[cut] * width / 8) + scale_bytes(width, plan.model.blocks[cut].in_shape)
        for cut, bits in feature_bits(plan).items()
        for width in {bits, max(CODED_BITS, bits)}
    )
    calibration = plan.local_samples // (1 if plan.heads.out_of_fold else 5) if plan.heads.exits else 0
    exact = (plan.local_scored + plan.global_scored + calibration) * sum(values[cut] * 2 for cut in plan.cuts)
    return plan.pool_samples * train + exact + start_bytes(plan)


def weight_bytes(plan: TrialPlan) -> int:
    """Return the bytes of the trained weights, which a trial writes and a run keeps for its front."""
    kept = start_bytes(plan) if plan.heads.ridge else 0  # rounds on a device begin with it again
    return head_bytes(plan) + kept + FLOAT_BYTES * sum(block.parameters for block in plan.model.blocks[plan.split :])


def _source_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to get one sample's input of the tail."""
    if not plan.cached:
        return fill_seconds(plan, rates)
    return math.prod(plan.source.in_shape) * FLOAT_BYTES / rates.read_bytes


def _exit_source_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds to get one sample's inputs of all side heads; those in closed form are read one by one."""
    if not plan.heads.exits:
        return 0.0
    deep = [exit_.block for exit_ in plan.heads.exits if exit_.block > plan.split]
    runs = deep if plan.heads.ridge else [max(deep, default=0)]
    inside = sum(sum(rates.forward_seconds[plan.split : cut]) for cut in runs)
    if not plan.cached:
        return fill_seconds(plan, rates) + inside
    cuts = {plan.split if exit_.block in deep else exit_.block for exit_ in plan.heads.exits}
    return sum(math.prod(plan.model.blocks[cut].in_shape) for cut in cuts) * FLOAT_BYTES / rates.read_bytes + inside


def _head_seconds(plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of all side heads' forward pass, per sample."""
    return _seconds_of(sum(head_flops(plan)), plan, rates)


def _seconds_of(flops: int, plan: TrialPlan, rates: Rates) -> float:
    """Return the seconds of some FLOPs at the model's own rate."""
    return flops * sum(rates.forward_seconds) / max(1, forward_flops(plan))
