"""The precision in which a bundle's frozen blocks compute."""

from dataclasses import replace

from tuner.errors import PlanError
from tuner.plan.trial import TrialPlan


def in_int8(plan: TrialPlan, most_loss: float | None = None) -> TrialPlan:
    """Return a plan whose bundle has its frozen blocks in int8.

    Args:
        plan: The plan.
        most_loss: Largest loss of an accuracy, as a share; the plan's own where it is not given.

    Raises:
        PlanError: The plan has no frozen blocks before a tail.
    """
    if plan.heads.exits or not plan.split:
        reason = "has exits" if plan.heads.exits else "trains the whole model"
        raise PlanError(f"int8 is for the frozen blocks before a tail, but this trial {reason}: pick another trial")
    runtime = replace(plan.runtime, precision="int8")
    return replace(plan, runtime=runtime if most_loss is None else replace(runtime, int8_loss=most_loss))
