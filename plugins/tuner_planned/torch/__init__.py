"""Steps in planned memory on PyTorch: what runs and what counts them, an entry point of the group `tuner.steps`.

What plans a step is imported where that pays: small tails train by PyTorch's eager loop.
"""

from importlib import import_module

from torch import nn

from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.step.losses import ExtendedLoss
from tuner.backends.torch.step.traced import Step, StepError
from tuner.backends.torch.task_loss import StepLoss
from tuner.backends.torch.trial.opened import TailTraining, TrialSteps
from tuner.plan.trial import TrialPlan
from tuner.planner.device import STATE_COPIES
from tuner.planner.memory.step import StepPlan
from tuner.planner.tail_terms import kept_bytes, planned_from, worth_planning


def load() -> None:
    """Import what plans a step, once here instead of in every child."""
    import_module("tuner_planned.torch.steps")


def planned_or_eager(training: TailTraining) -> TrialSteps:
    """Return the planned executor where it pays and the tail can be traced, else `EagerSteps`; notes say why."""
    plan = training.plan
    if worth_planning(plan):
        from tuner_planned.torch.steps import PlannedSteps

        try:
            return PlannedSteps(training)
        except StepError as error:
            reason = str(error)
    elif not plan.traits.traceable:
        reason = "the tail changes while it trains"
    elif plan.data.batches:
        reason = f"{plan.data.batches[0].kind} changes batches and their labels"
    elif plan.recipe.optimiser not in STATE_COPIES:
        reason = f"the planned executor does not have optimiser {plan.recipe.optimiser}"
    else:
        saved = f"{kept_bytes(plan) / 1e6:,.1f} MB kept for the backward pass"
        reason = f"{saved}, and the planned executor is used from {planned_from(plan) / 1e6:,.0f} MB on"
    steps = EagerSteps(training)
    steps.notes = (f"run by PyTorch's eager loop: {reason}",)
    return steps


def planned_step(tail: nn.Module, plan: TrialPlan, loss: StepLoss | ExtendedLoss) -> StepPlan:
    """Return a plan's training step in numbers; see `tuner_planned.torch.step_plan.planned_step`."""
    from tuner_planned.torch.step_plan import planned_step as counted

    return counted(tail, plan, loss)


def plan_traced(step: Step) -> None:
    """Plan a traced step, to see how long that takes."""
    from tuner_planned.torch.program import program

    program(step)
