"""Steps in planned memory on PyTorch: what runs and what counts them, an entry point of the group `tuner.steps`."""

from tuner_planned.torch.program import program
from tuner_planned.torch.step_plan import planned_step
from tuner_planned.torch.steps import planned_or_eager

__all__ = ["planned_or_eager", "planned_step", "program"]
