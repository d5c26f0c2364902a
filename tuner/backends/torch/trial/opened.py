"""A task opened on PyTorch, as trials and exports take it."""

from dataclasses import dataclass, replace

from tuner.backends.base import silent
from tuner.backends.extensions import Extensions
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.trial.steps import TrialStepsFactory
from tuner.errors import TaskError
from tuner.plan.trial import TrialPlan
from tuner.store.store import Store
from tuner.task import Task
from tuner.training.epochs import Report


@dataclass(frozen=True, slots=True)
class OpenTask:
    """What a session holds.

    Attributes:
        task: To personalise on.
        model: The task's model.
        extensions: What plugins add.
        steps: Makes what runs the steps of a trial.
    """

    task: Task
    model: OpenModel
    extensions: Extensions
    steps: TrialStepsFactory

    def described_by(self, plan: TrialPlan) -> "OpenTask":
        """Return the same with the model as a plan describes it.

        Raises:
            TaskError: The plan is about another model.
        """
        if plan.model.fingerprint != self.model.fingerprint:
            raise TaskError(
                f"{self.task.model.factory} or its weights changed since the plan was made: run `tuner run` again"
            )
        return replace(self, model=self.model.with_info(plan.model))

    def access(self, plan: TrialPlan, store: Store, report: Report = silent) -> Access:
        """Return the task's features in a store, computed as a plan says."""
        return Access(self.task, self.model, store, plan.runtime.threads, report, plan.runtime.precision)
