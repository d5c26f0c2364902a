"""A session that passes every call on to another: what backends of benchmarks and tests change a method of.

Like a backend's own module, it loads no tensor library.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tuner.backends.base import Exported, Filling, Session, Trial, silent
from tuner.plan.info import ModelInfo
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FirstSteps, Rates
from tuner.planner.memory.step import StepPlan
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.training.epochs import Report


class Delegate(Session):
    """Passes every call on.

    Args:
        session: To pass on to.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def model(self) -> ModelInfo:
        """The model's chain of blocks."""
        return self.session.model

    def measure(
        self,
        threads: int,
        within: float = math.inf,
        known: Mapping[str, float] = MappingProxyType({}),
        report: Report = silent,
    ) -> Rates:
        """Return this device's speed on this model."""
        return self.session.measure(threads, within, known, report)

    def first_steps(self, threads: int, within: float = math.inf) -> FirstSteps:
        """Return what the first training step of a fresh process takes."""
        return self.session.first_steps(threads, within)

    def plan_step(self, plan: TrialPlan) -> StepPlan | None:
        """Return a plan's training step."""
        return self.session.plan_step(plan)

    def untouched(
        self, store: Store, threads: int, report: Report = silent, share: float = 1.0, folds: int = 0
    ) -> Outcome:
        """Return the given model's own accuracies."""
        return self.session.untouched(store, threads, report, share, folds)

    def missing(self, plans: Sequence[TrialPlan], store: Store) -> int:
        """Return how many samples the store lacks."""
        return self.session.missing(plans, store)

    def fill(self, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        """Run the prefix on what the plans need and the store lacks."""
        return self.session.fill(plans, store, report)

    def train(self, trial: Trial) -> Outcome:
        """Carry a plan out."""
        return self.session.train(trial)

    def export(
        self, plan: TrialPlan, weights: Path, folder: Path, *, trainable: bool, store: Store | None = None
    ) -> Exported:
        """Write the personalised model and check it."""
        return self.session.export(plan, weights, folder, trainable=trainable, store=store)
