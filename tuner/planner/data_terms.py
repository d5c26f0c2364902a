"""What a plan reads and stores: features, prefix and weights, in bytes."""

import math

from tuner.plan.trial import TrialPlan
from tuner.planner.device import FLOAT_BYTES
from tuner.planner.heads_terms import head_bytes, start_bytes
from tuner.store.codec import scale_bytes

#: Width, in bits, of the codes that a filling pass writes; those of 4, 2 and 1 bits are requantised from them.
CODED_BITS = 8
#: Width, in bits, of the features that a teacher answers on.
EXACT_BITS = 32
#: Quantising the prefix takes as long as filling so many samples (MobileNetV2 at 160 pixels: 10 s, 5 ms a sample).
QUANTISING_SAMPLES = 2000


def feature_bits(plan: TrialPlan) -> dict[int, int]:
    """Return the width of the stored values that training reads, in bits by cut.

    Exits that are trained alone have a teacher, the final head, whose answers come from exact features.
    """
    exits = {exit_.block: plan.cache.bits for exit_ in plan.heads.along if exit_.block <= plan.cuts[-1]}
    return exits | ({plan.split: plan.cache.bits} if plan.trainable else {plan.model.num_blocks - 1: EXACT_BITS})


def feature_records(plan: TrialPlan) -> tuple[tuple[int, int], ...]:
    """Return the feature records that the prefix pass writes for training, as pairs of cut and bits, ascending."""
    return tuple(sorted((cut, max(CODED_BITS, bits)) for cut, bits in feature_bits(plan).items()))


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
    calibration = plan.local_samples // (1 if plan.out_of_fold else 5) if plan.heads.exits else 0
    exact = (plan.local_scored + plan.global_scored + calibration) * sum(values[cut] * 2 for cut in plan.cuts)
    return plan.pool_samples * train + exact + start_bytes(plan) + sum(map(feature_bytes, plan.passes[1:]))


def weight_bytes(plan: TrialPlan) -> int:
    """Return the bytes of the trained weights, which a trial writes and a run keeps for its front."""
    kept = start_bytes(plan) if plan.heads.ridge else 0  # rounds on a device begin with it again
    tails = 2 if plan.traits.keeps_given else 1
    tail = FLOAT_BYTES * sum(block.parameters for block in plan.model.blocks[plan.split :])
    return head_bytes(plan) + kept + tails * tail


def runs_prefix(plan: TrialPlan) -> bool:
    """Return whether frozen blocks run before every step, as their outputs are not stored."""
    return plan.split > 0 and not plan.cached
