"""What side heads cost: FLOPs, memory, and learning what they begin with."""

import math

from tuner.plan.heads import HeadsPlan, head_macs, head_parameters, linear_inputs
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FLOAT_BYTES, state_copies

#: How exits that train by steps learn what they begin with: the same in all trials of a study.
START_RECIPE = RecipePlan()
START_HEADS = HeadsPlan("exits-only", supervised=1.0, distilled=1.0)
DOUBLE_BYTES = 8
#: Targets that sums are of: labels, hard answers, probabilities.
TARGETS = 3


def head_flops(plan: TrialPlan) -> tuple[int, ...]:
    """Return the forward FLOPs of each side head, per sample."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    return tuple(2 * head_macs(blocks[exit_.block].in_shape, exit_.channels, outputs) for exit_ in plan.heads.exits)


def start_samples(plan: TrialPlan) -> int:
    """Return how many global samples a plan's exits begin with; 0 where they begin with nothing."""
    return plan.pool_samples - plan.local_samples if plan.heads.global_weight else 0


def sums_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of adding a global sample to the sums of all exits, in float64, which counts twice."""
    widths = _widths(plan) if plan.heads.ridge else []
    return sum(2 * 2 * width * (width + TARGETS * plan.model.outputs) for width in widths)


def start_bytes(plan: TrialPlan) -> int:
    """Return the bytes of what a plan's exits begin with, as the store keeps it."""
    if not plan.heads.global_weight:
        return 0
    if plan.heads.ridge:
        return sum(DOUBLE_BYTES * (width + 1) * (width + 1 + TARGETS * plan.model.outputs) for width in _widths(plan))
    return head_bytes(plan)


def head_bytes(plan: TrialPlan) -> int:
    """Return the bytes of the side heads' weights."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    return FLOAT_BYTES * sum(
        head_parameters(blocks[exit_.block].in_shape, exit_.channels, outputs) for exit_ in plan.heads.exits
    )


def heads_bytes(plan: TrialPlan, batch: int) -> int:
    """Return the bytes of training the side heads in batches: state, inputs, and what they keep for backward."""
    answers = FLOAT_BYTES * (1 + bool(plan.heads.ridge) * TARGETS) * plan.model.outputs * start_samples(plan)
    if plan.heads.ridge:  # float64 features of one exit, as codes and their copies, and matrices of sums, of folds too
        widest = max(_widths(plan), default=0)
        solving = DOUBLE_BYTES * widest * (5 * plan.train_samples + 6 * widest)
        return solving + answers + 3 * start_bytes(plan)
    values = 0
    for exit_ in plan.heads.exits:
        shape, channels = plan.model.blocks[exit_.block].in_shape, exit_.channels
        halved = math.prod(math.ceil(extent / 2) for extent in shape[1:])
        values += 3 * math.prod(shape) + 3 * channels * halved  # outputs of convolution, norm and activation
    state = head_bytes(plan) * state_copies(plan.recipe.optimiser)
    return state + batch * values * FLOAT_BYTES + answers


def _widths(plan: TrialPlan) -> list[int]:
    return [linear_inputs(plan.model.blocks[exit_.block].in_shape) for exit_ in plan.heads.exits]
