"""FLOPs of a plan."""

from tuner.plan.heads import head_macs
from tuner.plan.trial import TrialPlan
from tuner.planner.device import TRAIN_PASSES


def forward_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of a forward pass through all blocks."""
    return sum(block.flops for block in plan.model.blocks)


def head_flops(plan: TrialPlan) -> tuple[int, ...]:
    """Return the forward FLOPs of each side head, per sample."""
    blocks, outputs = plan.model.blocks, plan.model.outputs
    return tuple(2 * head_macs(blocks[exit_.block].in_shape, exit_.channels, outputs) for exit_ in plan.heads.exits)


def training_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of the whole trial on an empty store; backward counts two forward passes."""
    tail = sum(block.flops for block in plan.model.blocks[plan.split :])
    prefix = sum(block.flops for block in plan.model.blocks[: plan.split])
    once = plan.pool_samples if plan.cached or plan.data.edit is not None else 0
    again = 0 if plan.cached else plan.recipe.epochs * plan.train_samples
    return int((once + again) * prefix + plan.train_samples * plan.recipe.epochs * TRAIN_PASSES * tail)
