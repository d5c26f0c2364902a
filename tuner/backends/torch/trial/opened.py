"""A task opened on PyTorch, as trials and exports take it, and the steps of a trial, whichever engine runs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

import torch
from torch import nn

from tuner.arrays import Floats, Labels
from tuner.backends.base import silent
from tuner.backends.extensions import NOTHING_ADDED, Extensions
from tuner.backends.lowering import TrainingSamples
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.selection import Selection
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.step.losses import ExtendedLoss, loss_of
from tuner.backends.torch.task_loss import StepLoss
from tuner.backends.torch.trial.inputs import TailInputs, computed_inputs, kept_inputs, plan_prefix
from tuner.errors import TaskError
from tuner.plan.trial import TrialPlan
from tuner.store.store import Store
from tuner.task import Task
from tuner.training.epochs import Report
from tuner.training.steps import Steps


@dataclass(frozen=True, slots=True, eq=False)
class TailTraining:
    """What an engine trains: a tail, on its inputs; the seed is that of what the steps draw."""

    task: Task
    plan: TrialPlan
    tail: nn.Module
    inputs: TailInputs
    seed: int
    extensions: Extensions = NOTHING_ADDED

    @property
    def loss(self) -> StepLoss | ExtendedLoss:
        """What the steps minimise."""
        return loss_of(self.task, self.plan, self.extensions)


class TrialSteps(Steps):
    """Trains a tail.

    Attributes:
        notes: What the user should know of how the steps run.
        example: One input of the tail, float32 [1, ...].
        metadata: What the file of the trial's weights says beside them.
        left_out: Logits of the local training samples, each by weights that never saw it, float32 [local, outputs],
            and their labels; None where samples are trained on by steps.
    """

    notes: tuple[str, ...] = ()
    example: torch.Tensor
    metadata: Mapping[str, str] = MappingProxyType({})
    left_out: tuple[Floats, Labels] | None = None

    def finish(self, samples: TrainingSamples) -> tuple[str, ...]:  # noqa: ARG002 - optional
        """Let the tail become what is scored and written; return notes for the trial's record."""
        return ()


TrialStepsFactory = Callable[[TailTraining], TrialSteps]


@dataclass(frozen=True, slots=True)
class OpenTask:
    """What a session holds; `steps` makes what runs the steps of a trial, `tasks` keeps the task at other sizes."""

    task: Task
    model: OpenModel
    extensions: Extensions
    steps: TrialStepsFactory
    tasks: dict[int, Task] = field(default_factory=dict)

    def described_by(self, plan: TrialPlan) -> "OpenTask":
        """Return the same with the model, and the size of its input, as a plan describes them."""
        if plan.model.fingerprint != self.model.fingerprint:
            raise TaskError(
                f"{self.task.model.factory} or its weights changed since the plan was made: run `tuner run` again"
            )
        if plan.size and plan.size not in self.tasks:  # what is known of its samples is kept
            self.tasks[plan.size] = self.task.at(plan.size)
        return replace(self, task=self.tasks.get(plan.size, self.task), model=self.model.with_info(plan.model))

    def without_test(self) -> "OpenTask":
        """Return the same without test samples, which are then not scored."""
        return replace(self, task=replace(self.task, local=replace(self.task.local, test=None)))

    def access(self, plan: TrialPlan, store: Store, report: Report = silent) -> Access:
        """Return the task's features in a store, computed as a plan says."""
        return Access(self.task, self.model, store, plan.runtime.threads, report, plan.runtime.precision)

    def inputs(self, plan: TrialPlan, selections: Sequence[Selection], store: Store | None = None) -> list[TailInputs]:
        """Return what a tail reads of each selection: from a store that has all of it, else from the samples."""
        access = self.access(plan, store) if store is not None and plan.cached else None
        prefix = cache(lambda: plan_prefix(self.task, self.model, plan))
        kept = [None if access is None else kept_inputs(access, plan, one) for one in selections]
        return [own or computed_inputs(self.task, prefix(), [one]) for own, one in zip(kept, selections, strict=True)]
