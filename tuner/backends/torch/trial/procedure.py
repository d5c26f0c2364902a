"""The order in which every trial is carried out, whatever trains in it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from tuner.backends.base import Trial
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.int8 import prediction_costs
from tuner.backends.torch.features.selection import Selection
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.trial.choice import chosen_selections, mixed_metadata
from tuner.backends.torch.trial.opened import OpenTask
from tuner.errors import TrainingError
from tuner.process_memory import PeakMeter
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import Outcome
from tuner.training.epochs import TrainingLog


class Procedure(ABC):
    """One trial; see `tuner.backends.base.Session.train`.

    Args:
        trial: What to carry out.
        opened: The task and its model, as the plan describes it.

    Attributes:
        training: The samples of an epoch.
        trained: What trained, in evaluation mode.
        notes: For the trial's record.
        continued: Number of epochs that an interrupted process had trained before.
    """

    trained: nn.Module
    training: list[Selection]

    def __init__(self, trial: Trial, opened: OpenTask) -> None:
        self.trial, self.opened, self.plan = trial, opened, trial.plan
        self.access = opened.access(trial.plan, trial.store, trial.report)
        self.notes: tuple[str, ...] = ()
        self.continued = 0

    def carry_out(self) -> Outcome:
        """Fill the store, choose samples, train, score, and write the weights."""
        trial, plan = self.trial, self.plan
        torch.set_num_threads(plan.runtime.threads)
        torch.manual_seed(trial.seed)
        if plan.cached:
            fill(self.access, [plan])  # nothing to do in a study, which fills ahead
        is_int8 = plan.runtime.precision == "int8"
        self.int8 = prediction_costs(self.opened.task, self.opened.model, plan.split) if is_int8 else None
        self.meter = PeakMeter()
        trial.report({"resting_bytes": self.meter.resting})
        started = time.perf_counter()
        self.training = chosen_selections(self.access, plan, self.opened.extensions)
        self.choosing = time.perf_counter() - started if plan.data.edit is not None else 0.0
        log = self.train()
        values, classes = self.score()
        values["train_seconds"] = log.seconds
        self.write(mixed_metadata(plan, self.training))
        values["peak_bytes"] = float(self.meter.peak_bytes())
        return Outcome(values, log.entries, log.ended, self.notes, classes)

    @abstractmethod
    def train(self) -> TrainingLog:
        """Train on `training`, and refuse what broke."""

    @abstractmethod
    def score(self) -> tuple[dict[str, float], dict[str, ClassCounts]]:
        """Return the values of what was trained, and the classes by domain."""

    @abstractmethod
    def write(self, metadata: Mapping[str, str] | None) -> None:
        """Write the weights."""


@contextmanager
def frozen(module: nn.Module, changed: str, cause: str) -> Iterator[None]:
    """Refuse a training that changes what stays as it is.

    Args:
        module: What must not change.
        changed: What happened if it does, for the message.
        cause: Why it may have.

    Raises:
        TrainingError: Its weights or buffers changed.
    """
    before = state_hash(module)
    yield
    if state_hash(module) != before:
        raise TrainingError(f"{changed}, so the trial does not count: check whether {cause}")
