"""A task opened on PyTorch: its model is built and traced once, for every job that follows."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from tuner.backends.base import Exported, Filling, Session, Trial, silent
from tuner.backends.extensions import Extensions
from tuner.backends.measuring import MeasuredTrial, Measuring
from tuner.backends.torch import compiler
from tuner.backends.torch.clock import Clock
from tuner.backends.torch.export import whole
from tuner.backends.torch.features.access import Access, prefix_hash
from tuner.backends.torch.features.fill import fill, missing, needed
from tuner.backends.torch.features.int8 import prediction_costs
from tuner.backends.torch.measure import Measurement, steps_are_traced
from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.model.open.load import OpenModel, load, sized
from tuner.backends.torch.step.losses import loss_of
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import StepLoss, torch_loss
from tuner.backends.torch.trial.baselines import baselines
from tuner.backends.torch.trial.edits.edited import edited
from tuner.backends.torch.trial.edits.evolving import first_step
from tuner.backends.torch.trial.opened import OpenTask, TrialStepsFactory
from tuner.backends.torch.trial.tail import TailProcedure
from tuner.backends.torch.trial.untouched import untouched
from tuner.distribution import offered
from tuner.errors import PluginError, UnsupportedError
from tuner.machine.process_memory import PeakMeter, return_freed
from tuner.plan.info import ModelInfo
from tuner.plan.parts import DataPlan
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FILL_BATCH, FirstSteps, Rates
from tuner.planner.memory.step import StepPlan
from tuner.planner.tail_terms import worth_planning
from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner.training.epochs import Report

#: Group of the entry points of what trains and exports plans with exits; their names are those of backends.
HEADS = "tuner.heads"
#: Group of the entry points of what plugins find out about an opened task.
QUESTIONS = "tuner.questions"


class TorchSession(Session):
    """A task, its model and what plugins add; `planned` is what plans the memory of a step, if that can be planned.

    `always_traces` says that each plan's steps are traced, and their memory is arranged elsewhere.

    Raises:
        TaskError: The model cannot be built, or the weights do not fit it.
    """

    def __init__(
        self,
        task: Task,
        extensions: Extensions,
        steps: TrialStepsFactory,
        planned: Any = None,
        *,
        always_traces: bool = False,
    ) -> None:
        torch.set_num_threads(1)  # a pool of threads would not survive a fork
        compiler.defer()
        self._opened = OpenTask(task, load(task), extensions, steps)
        self._planned, self._always_traces = planned, always_traces
        self._heads = offered(HEADS).get("torch")
        if self._heads is not None:
            self._heads.load()  # once here instead of in every child
        if steps_are_traced(self._opened.model.info):
            compiler.load()  # tracing imports it: once here instead of in every child
            if planned is not None:
                planned.load()

    @cached_property
    def model(self) -> ModelInfo:
        """The model's chain of blocks."""
        return self._opened.model.info

    def sized(self, sizes: Sequence[int]) -> ModelInfo:
        """Run every block on samples of each size."""
        return replace(self.model, sizes=tuple(sized(self._opened.task, self._opened.model, size) for size in sizes))

    def prepare(self, plan: TrialPlan) -> None:
        """Hash the prefix, and order the samples."""
        if self._always_traces or worth_planning(plan):
            compiler.load()
        for own in plan.passes:
            opened = self._of(own)
            needed(opened.task, [own])
            for cut in own.cuts if opened.model.chain is not None else ():
                prefix_hash(opened.model.chain, cut)

    def measure(
        self,
        threads: int,
        within: float = math.inf,
        known: Mapping[str, float] = MappingProxyType({}),
        report: Report = silent,
        plan: TrialPlan | None = None,
    ) -> Rates:
        """Time every block of the model."""
        opened = self._opened if plan is None else self._of(plan)
        return Measurement(opened.task, opened.model, Clock(within, threads), known, report).rates()

    def first_steps(self, threads: int, within: float = math.inf) -> FirstSteps:  # noqa: ARG002 - ended from outside
        """Run every block once, forward and backward, from the last to the first."""
        return first_steps(self._opened.task, self._opened.model, threads)

    def plan_step(self, plan: TrialPlan) -> StepPlan | None:
        """Trace and plan a step, or, of a tail that changes while it trains, count the one it starts with."""
        if self._always_traces or plan.traits.solves:
            return None
        torch.set_num_threads(plan.runtime.threads)
        edits = edited(self._of(plan).model, plan, self._opened.extensions)
        if not plan.traits.traceable:
            return first_step(edits.tail, plan)
        if self._planned is None:
            return None
        try:
            step: StepPlan = self._planned.planned_step(
                edits.tail, plan, loss_of(self._opened.task, plan, self._opened.extensions)
            )
        except StepError:
            return None
        return step

    def untouched(
        self, store: Store, threads: int, report: Report = silent, share: float = 1.0, folds: int = 0
    ) -> Outcome:
        """Score the given model."""
        torch.set_num_threads(threads)
        access = Access(self._opened.task, self._opened.model, store, threads, report)
        return untouched(access, DataPlan(share=share, folds=folds))

    def baselines(
        self, store: Store, threads: int, share: float = 1.0, folds: int = 0, within: float = math.inf
    ) -> tuple[Baseline, ...]:
        """Fit linear layers, and what plugins offer."""
        torch.set_num_threads(1)  # of such small steps, a second thread takes longer to wake than to work
        access = Access(self._opened.task, self._opened.model, store, threads, silent)
        return baselines(access, DataPlan(share=share, folds=folds), within)

    def ask(self, question: str, **about: Any) -> Any:
        """Call the plugin's function with the opened task."""
        if (point := offered(QUESTIONS).get(question)) is None:
            raise UnsupportedError(f"no plugin that is on answers {question!r}: switch on the one that asks")
        return point.load()(self._opened, **about)

    def missing(self, plans: Sequence[TrialPlan], store: Store) -> int:
        """Return how many samples the store lacks."""
        return missing(self._of(plans[0]).access(plans[0], store), plans)

    def fill(self, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        """Run the prefix on what the plans need and the store lacks; learn what the first one's exits begin with."""
        torch.set_num_threads(plans[0].runtime.threads)
        opened = self._of(plans[0])
        access = opened.access(plans[0], store, report)
        filling = fill(access, plans)
        for cut in {plan.split for plan in plans if plan.runtime.precision == "int8" and not filling.stopped}:
            prediction_costs(opened.task, opened.model, cut)  # here, where nothing trains
        if not plans[0].heads.exits:  # what those of the others begin with may never be needed
            return filling
        begun = self._exits.starts(access, plans[0], opened.extensions, may_stop=True)
        return replace(filling, stopped=filling.stopped or begun.stopped)

    def train(self, trial: Trial) -> Outcome:
        """Train the tail, and the exits where the plan has any, and take the measures of plugins around it."""
        measuring = Measuring(self._opened.extensions.measures, trial.objectives)
        kind = self._exits.ExitsProcedure if trial.plan.heads.exits else TailProcedure
        procedure: TailProcedure = kind(trial, self._of(trial.plan))
        outcome = procedure.carry_out()
        trained, answers = procedure.trained, procedure.scores.answers
        return measuring.end(MeasuredTrial(trial.plan, trained, outcome, procedure.continued, answers))

    def export(self, plan: TrialPlan, weights: Path, folder: Path, *, test: bool = True, **asked: Any) -> Exported:
        """Write the personalised model, and with `trainable` its training step and the replay."""
        opened = self._of(plan) if test else self._of(plan).without_test()
        exporter = self._exits if plan.heads.exits else whole
        exported: Exported = exporter.export(opened, plan, weights, folder, **asked)
        return exported

    def judge(self, plan: TrialPlan, weights: Path, store: Store | None = None) -> Exported:
        """Run the validation samples through the trained model; what has exits, or is in int8, is exported for that."""
        if plan.heads.exits or plan.runtime.precision == "int8":
            return super().judge(plan, weights, store)
        return whole.judged(self._of(plan), plan, weights, store)

    @property
    def _exits(self) -> Any:
        if self._heads is None:
            raise PluginError("no plugin for early exits is switched on: see `tuner plugins`, and TUNER_PLUGINS")
        return self._heads.load()

    def _of(self, plan: TrialPlan) -> OpenTask:
        return self._opened.described_by(plan)


def first_steps(task: Task, model: OpenModel, threads: int) -> FirstSteps:
    """Run every block on zeros, forward and backward, with an optimiser, from the last to the first.

    None of them ran in this process before; what the model describes of itself is known.
    """
    torch.set_num_threads(threads)
    return_freed()
    loss: StepLoss | None = torch_loss(task.targets)
    blocks, parts = model.info.blocks, model.parts()
    library_bytes, seconds = list[int](), list[float]()
    resting, slower = PeakMeter().resting, 0.0
    for block, part in zip(reversed(blocks), reversed(parts), strict=True):
        channels_last(part)
        cold, warm = (_timed_step(part, block.in_shape, loss) for _ in range(2))
        slower += max(0.0, cold - warm)
        return_freed()
        library_bytes.insert(0, max(0, PeakMeter().resting - resting))
        seconds.insert(0, slower)
        loss = None
    return FirstSteps(tuple(library_bytes), tuple(seconds))


def _timed_step(part: nn.Module, in_shape: tuple[int, ...], loss: StepLoss | None) -> float:
    """Return the seconds of a step on zeros that moves no weight; `loss` is None but for the last block."""
    started = time.perf_counter()
    outputs = part(spatial(torch.zeros(FILL_BATCH, *in_shape)).requires_grad_())
    if loss is None:
        outputs.backward(torch.ones_like(outputs))
    else:
        loss.mean(outputs, loss.zeros(outputs)).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    trained = [value for value in part.parameters() if value.grad is not None]
    if trained:
        torch.optim.AdamW(trained, lr=0.0, fused=True).step()
    for value in trained:
        value.grad = None
    return time.perf_counter() - started
