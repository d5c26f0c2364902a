"""Plans for the built-in task, on its own model."""

from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.task import Task
from tuner.task.info import task_info


def plan_of(task: Task, loaded: OpenModel, bits: int = 8, split: int = 2, alpha: float = 0.05) -> TrialPlan:
    return TrialPlan(
        model=loaded.info,
        task=task_info(task),
        data=DataPlan(alpha),
        split=split,
        cache=CachePlan("cache", bits),
        recipe=RecipePlan(epochs=2),
        runtime=RuntimePlan(threads=1),
    )
