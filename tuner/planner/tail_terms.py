"""What training the tail takes: its FLOPs, the executor of its steps, and the bytes that it keeps."""

import math
from functools import cache

from tuner.distribution import EntryPoint, offered
from tuner.plan.trial import TrialPlan
from tuner.planner.device import STATE_COPIES
from tuner.ridge.sums import MOST_FEATURES

#: Group of the entry points of what runs steps in planned memory; their names are those of backends.
STEPS = "tuner.steps"
#: Bytes kept of a batch for the backward pass from which on the planned executor pays where memory is limited; where
#: it is not, so many times as many. The executor takes two thirds of the memory, and up to twice the time.
PLANNED_BYTES = 64_000_000
UNLIMITED = 16
#: Copies of XᵀX, and of features and scores of all samples, that are in memory at once while a head is solved for.
SOLVING_COPIES = 6
DOUBLE_BYTES = 8


def forward_flops(plan: TrialPlan) -> int:
    """Return the FLOPs of a forward pass through all blocks."""
    return sum(block.flops for block in plan.model.blocks)


def network_values(plan: TrialPlan) -> dict[str, float]:
    """Return what the given network measures, by objective: that of a plan which neither grows nor has exits."""
    flops = float(forward_flops(plan))
    parameters = float(sum(block.parameters for block in plan.model.blocks))
    return {"parameters": parameters, "flops": flops, "mean_flops": flops}


def kept_bytes(plan: TrialPlan) -> int:
    """Return the bytes that PyTorch's eager loop keeps of a batch, or of a micro-batch, for its backward pass."""
    batch = min(plan.recipe.part_size, max(1, plan.train_samples))
    return batch * sum(block.saved_bytes for block in plan.model.blocks[plan.split :])


@cache
def planned_executor() -> EntryPoint | None:
    """Return what runs PyTorch's steps in planned memory; None where no plugin does."""
    return offered(STEPS).get("torch")


def planned_from(plan: TrialPlan) -> int:
    """Return the bytes kept of a batch from which on the planned executor pays."""
    return PLANNED_BYTES * (1 if plan.runtime.memory_bytes else UNLIMITED)


def worth_planning(plan: TrialPlan) -> bool:
    """Return whether a trial runs its steps by the planned executor, provided the tail can be traced.

    Tracing takes seconds and tens of MB, which do not pay where the eager loop keeps less than `planned_from`. Tails
    that change while they train would have to be traced again and again, and updates of a plugin's optimiser cannot be.
    Exits in a tail that train with it are not part of a traced step, and the labels of changed batches are not either.
    """
    if plan.heads.joint or plan.data.batches or not plan.traits.traceable or plan.recipe.optimiser not in STATE_COPIES:
        return False
    return kept_bytes(plan) >= planned_from(plan) and planned_executor() is not None


def solving_bytes(plan: TrialPlan) -> int:
    """Return the bytes of solving for a head: sums and an inverse, features and scores of all samples; 0 of others.

    A head with too many features is not solved for again.
    """
    features = math.prod(plan.model.blocks[-1].in_shape)
    if not (plan.traits.solves or (plan.recipe.solve_again and plan.trainable and features <= MOST_FEATURES)):
        return 0
    return SOLVING_COPIES * DOUBLE_BYTES * (features**2 + plan.train_samples * (features + plan.model.outputs))
