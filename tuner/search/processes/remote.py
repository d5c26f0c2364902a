"""A session in another process: every call is a job in a fresh child, under limits."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from tuner.backends.base import Exported, Filling, Session, Trial, silent
from tuner.machine.awake import CLOCK
from tuner.plan.info import ModelInfo
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FirstSteps, Rates
from tuner.planner.memory.step import StepPlan
from tuner.plugin.host import Host
from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import Outcome
from tuner.search.processes.guard import Interrupt, JobLimits, JobResult, Progress
from tuner.search.processes.messages import Job, Start
from tuner.search.processes.process_tree import require_system
from tuner.search.processes.supervisor import Supervisor
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import TaskOutline
from tuner.training.epochs import Report

#: Methods whose memory counts from their start, as that of an export; the others look up what is there, or count it.
METERED = frozenset({"plan_step", "judge"})
#: Baselines that take so many times their seconds are ended.
PATIENCE = 3.0
#: Of the seconds that measuring may take, what it is told: what it has begun by then may take the rest.
WITHIN_SHARE = 0.8


class RemoteSession(Session):
    """A task opened on a backend in the process that children are forked from.

    The methods of `Session` return what the job returned, or raise; `try_fill` and `try_train` run under limits of
    their own and say how the job ended. The others are killed at ``kill_at`` (`tuner.machine.awake.CLOCK`), and where
    they add more than ``memory_bytes`` to their process.
    """

    def __init__(
        self, supervisor: Supervisor, backend: str, kill_at: float | None = None, memory_bytes: int | None = None
    ) -> None:
        self._supervisor, self._backend = supervisor, backend
        self._limits = JobLimits(kill_at=kill_at, memory_bytes=memory_bytes)

    @property
    def task(self) -> TaskOutline:
        """The task, as the other process has loaded it: known before the libraries are loaded."""
        return self._supervisor.task(self._limits)

    @cached_property
    def model(self) -> ModelInfo:
        return cast("ModelInfo", self._call("looking at the model", "model"))

    def sized(self, sizes: Sequence[int]) -> ModelInfo:
        self.model = cast("ModelInfo", self._call("looking at other input sizes", "sized", sizes=list(sizes)))
        return self.model

    def measure(
        self,
        threads: int,
        within: float = math.inf,
        known: Mapping[str, float] = MappingProxyType({}),
        report: Report = silent,
        plan: TrialPlan | None = None,
    ) -> Rates:
        arguments = {"threads": threads, "within": WITHIN_SHARE * within, "known": dict(known)}
        arguments |= {} if plan is None else {"plan": plan}  # not every backend has sizes
        return cast("Rates", self._run("measuring this device", "measure", self._limited(within), report, **arguments))

    def first_steps(self, threads: int, within: float = math.inf) -> FirstSteps:
        return cast(
            "FirstSteps", self._run("measuring a first step", "first_steps", self._limited(within), threads=threads)
        )

    def plan_step(self, plan: TrialPlan) -> StepPlan | None:
        return cast("StepPlan | None", self._call("planning the step", "plan_step", plan=plan))

    def untouched(
        self, store: Store, threads: int, report: Report = silent, share: float = 1.0, folds: int = 0
    ) -> Outcome:
        asked = {"store": store, "threads": threads, "share": share} | ({"folds": folds} if folds else {})
        return cast("Outcome", self._call("scoring the untouched model", "untouched", report, **asked))

    def baselines(
        self, store: Store, threads: int, share: float = 1.0, folds: int = 0, within: float = math.inf
    ) -> tuple[Baseline, ...]:
        asked: dict[str, Any] = {"store": store, "threads": threads, "share": share, "folds": folds, "within": within}
        limits = self._limited(PATIENCE * within)
        return cast("tuple[Baseline, ...]", self._run("fitting baselines", "baselines", limits, **asked))

    def ask(self, question: str, **about: Any) -> Any:
        return self._call(f"finding out the {question}", "ask", question=question, **about)

    def missing(self, plans: Sequence[TrialPlan], store: Store) -> int:
        return int(self._call("looking into the store", "missing", plans=plans, store=store))

    def fill(self, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        return self.try_fill(plans, store, self._limits, report).unwrap("filling")

    def train(self, trial: Trial) -> Outcome:
        return self.try_train(trial, self._limits, trial.report).unwrap("training")

    def export(
        self, plan: TrialPlan, weights: Path, folder: Path, *, report: Report = silent, **asked: Any
    ) -> Exported:
        asked |= {"plan": plan, "weights": weights, "folder": folder}
        return cast("Exported", self._run("the export", "export", self._limits, report, **asked))

    def judge(self, plan: TrialPlan, weights: Path, store: Store | None = None) -> Exported:
        return cast("Exported", self._call("scoring the trial", "judge", plan=plan, weights=weights, store=store))

    def try_fill(
        self, plans: Sequence[TrialPlan], store: Store, limits: JobLimits, progress: Progress | None = None
    ) -> JobResult[Filling]:
        """Run a filling pass under limits and say how it ended."""
        arguments, frees = {"plans": plans, "store": store}, limits.memory_bytes is not None
        job = Job(self._backend, "fill", arguments, reports=True, frees=frees, file_bytes=limits.file_bytes)
        return self._supervisor.run(job, limits, progress)

    def try_train(self, trial: Trial, limits: JobLimits, progress: Progress | None = None) -> JobResult[Outcome]:
        """Carry a plan out under limits and say how it ended."""
        frees = limits.memory_bytes is not None and not trial.plan.cached  # its prefix runs in the same process
        arguments = {"trial": replace(trial, report=silent)}
        job = Job(
            self._backend, "train", arguments, reports=False, frees=frees, plan=trial.plan, file_bytes=limits.file_bytes
        )
        return self._supervisor.run(job, limits, progress)

    def _limited(self, within: float) -> JobLimits:
        """Return the limits of a job that may take so many seconds."""
        ends = [at for at in (self._limits.kill_at, CLOCK.now() + within) if at is not None and math.isfinite(at)]
        return replace(self._limits, kill_at=min(ends, default=None))

    def _call(self, what: str, method: str, report: Report | None = None, **arguments: Any) -> Any:
        limits = self._limits if method in METERED else replace(self._limits, memory_bytes=None)
        return self._run(what, method, limits, report, **arguments)

    def _run(self, what: str, method: str, limits: JobLimits, report: Report | None = None, **arguments: Any) -> Any:
        is_metered = limits.memory_bytes is not None
        job = Job(self._backend, method, arguments, reports=report is not None, metered=is_metered)
        return self._supervisor.run(job, limits, report).unwrap(what)


@contextmanager
def open_remote(
    host: Host,
    task: str | Task,
    backends: Sequence[str],
    *,
    interrupt: Interrupt | None = None,
    kill_at: float | None = None,
    memory_bytes: int | None = None,
    many_jobs: bool = False,
    adapt: Callable[[Task], Task] | None = None,
    looked: Callable[[int, int], object] | None = None,
    supervisor: Supervisor | None = None,
) -> Iterator[dict[str, RemoteSession]]:
    """Open a task on backends, which name the sessions, in another process, and end that when the block is left.

    For ``kill_at`` and ``memory_bytes``, see `RemoteSession`. With ``many_jobs``, what every job needs is computed
    before the first. ``adapt`` makes the task of the loaded one, in the other process; ``looked`` hears of
    how many of how many files were looked at. A given ``supervisor``, which has loaded the libraries, opens
    this task instead of its own, and is not ended with the block.

    Raises:
        PluginError: A backend is not installed.
        RunError: This system is not Linux.
    """
    require_system()
    preload = tuple(module for name in backends for module in host.backend(name).preload)
    start = Start(preload, task, tuple(backends), many_jobs, tuple(host.local), host.unwanted, memory_bytes, adapt)
    with ExitStack() as stack:
        if supervisor is None:
            supervisor = stack.enter_context(Supervisor(start, interrupt, looked))
        else:
            supervisor.reopen(start, looked)
        yield {name: RemoteSession(supervisor, name, kill_at, memory_bytes) for name in backends}
