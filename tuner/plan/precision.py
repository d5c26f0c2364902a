"""The precision in which a bundle's frozen blocks compute."""

from dataclasses import replace

from tuner.errors import PlanError
from tuner.plan.trial import TrialPlan


def in_int8(plan: TrialPlan, most_loss: float) -> TrialPlan:
    """Return a plan whose bundle has its frozen blocks in int8.

    Args:
        plan: The plan.
        most_loss: Largest loss of an accuracy, as a share.

    Raises:
        PlanError: The plan has no frozen blocks before a tail.
    """
    if plan.heads.exits or not plan.split:
        reason = "has exits" if plan.heads.exits else "trains the whole model"
        raise PlanError(f"int8 is for the frozen blocks before a tail, but this trial {reason}: pick another trial")
    return replace(plan, runtime=replace(plan.runtime, precision="int8", int8_loss=most_loss))
