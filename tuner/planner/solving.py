"""Memory of a head that is solved for."""

import math

from tuner.plan.trial import TrialPlan

#: Of XᵀX, and of features and scores of all samples, that are in memory at once.
COPIES = 6
DOUBLE_BYTES = 8


def solving_bytes(plan: TrialPlan) -> int:
    """Return the bytes of solving for a head: sums and an inverse, features and scores of all samples; 0 of others."""
    if not plan.traits.solves:
        return 0
    features = math.prod(plan.model.blocks[-1].in_shape)
    return COPIES * DOUBLE_BYTES * (features**2 + plan.train_samples * (features + plan.model.outputs))
