"""Arms of `benchmarks.search.feasible`: our study, and plain Optuna over the same store, trainers and guard."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna

from benchmarks.lib.places import EXAMPLES
from benchmarks.lib.setup import clothing
from benchmarks.limits.memory_limit import SPACE as ANY_DEPTH
from benchmarks.limits.memory_limit import few
from tuner.backends.base import Trial
from tuner.commands.tune.run import run
from tuner.plan.trial import TrialPlan
from tuner.planner.device import Rates
from tuner.planner.price import price
from tuner.plugin.compose import Composed, compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import ValueSource
from tuner.results.records.trial import SCORED, TrialRecord
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import RemoteSession, open_remote
from tuner.search.setting import participants, wanted_knobs
from tuner.search.space import load_space
from tuner.search.trials.journal import optuna_values
from tuner.store.store import Store
from tuner.task import Task, open_task
from tuner.task.info import task_info

SMALL = """
rungs = false
strategies = ["gdm", "freeze", "cache"]
[knobs]
runtime.backend = "torch"
gdm.alpha = { low = 0.0, high = 0.1 }
freeze.trainable_blocks = { low = 1, high = 4 }
cache.by = ["cache", "none"]
cache.bits = 8
cache.augment = 0.0
none.augment = 0.0
[knobs.recipe]
epochs = { low = 1, high = 20 }
batch_size = [16, 32, 64]
optimiser = ["adamw", "sgd"]
learning_rate = { low = 5e-4, high = 1.5e-2, log = true }
weight_decay = 0.0
schedule = "cosine"
patience = 0
freeze_bn = true
micro_batches = 1
"""


@dataclass
class Spent:
    """What an arm did with its trials.

    Attributes:
        memory: How many took more memory than allowed.
        time: How many took longer than allowed, within memory.
        lost: Seconds of both.
        refused: Plans that were not run.
        within: Values of the trials within the limits.
        records: Our trials.
    """

    memory: int = 0
    time: int = 0
    lost: float = 0.0
    refused: int = 0
    within: list[Mapping[str, float]] = field(default_factory=list)
    records: Sequence[TrialRecord] = ()

    def note(self, over: Mapping[str, float], values: Mapping[str, float] | None, seconds: float) -> None:
        """Count a trial; `over` is log(value / limit) of each limit, values None where it was killed."""
        self.memory += over["memory"] > 0
        self.time += over["memory"] <= 0 < over["train-time"]
        if max(over.values()) > 0:
            self.lost += seconds
        elif values is not None:
            self.within.append(values)


@dataclass(frozen=True)
class Problem:
    """A task, its space and its limits.

    Attributes:
        task: As another process opens it.
        space: File of the search space.
        memory: Bytes that are allowed.
        seconds: Seconds of training that are allowed.
        trials: Trials of each arm.
    """

    task: str | Task
    space: Path
    memory: int
    seconds: float
    trials: int

    def over(self, seconds: float, nbytes: float) -> dict[str, float]:
        """Return by how much a trial breaks each limit."""
        return {"memory": math.log(nbytes / self.memory), "train-time": math.log(max(seconds, 1e-3) / self.seconds)}


class Composer:
    """Composes plans of a problem's space.

    Args:
        space: Its file.
        task: The task.
        session: The task, opened.
    """

    def __init__(self, space: Path, task: Task, session: RemoteSession) -> None:
        host, found = build_host(), load_space(str(space))
        self._strategies, _ = participants(host, found)
        self._wanted, self._model = wanted_knobs(found, "torch", deterministic=False), session.model
        self._task = task_info(task)

    def __call__(self, source: ValueSource) -> Composed:
        """Compose a plan."""
        return compose(self._strategies, source, self._model, self._task, self._wanted)


def task_of(name: str) -> str | Task:
    """Return a task by its name here."""
    if name == "clothing":
        return few(clothing(160, 96, 32, held=True))
    return "digits" if name == "digits" else str(EXAMPLES / "emg" / "task.toml")


def task_from(task: str | Task) -> Task:
    """Return a task that may be given by its name."""
    return open_task(task, build_host().tasks) if isinstance(task, str) else task


def space_of(name: str, folder: Path) -> Path:
    """Write a task's search space."""
    path = folder / f"{name}.toml"
    small = SMALL.replace('["cache", "none"]', '"none"') if name == "digits" else SMALL  # else filling decides it all
    path.write_text(f"rungs = false\n{ANY_DEPTH.read_text()}" if name == "clothing" else small)
    return path


def limits(plans: Sequence[TrialPlan], rates: Rates) -> tuple[int, float]:
    """Return bytes and seconds that half of the plans break together, a quarter of them the seconds."""
    costs = [(price(plan, rates).peak_bytes, price(plan, rates).train_seconds) for plan in plans]
    longest = sorted(seconds for _, seconds in costs)[len(costs) * 3 // 4]
    quick = sorted(nbytes for nbytes, seconds in costs if seconds <= longest)
    return quick[min(len(quick) - 1, len(costs) // 2)], longest


def ours(problem: Problem, seed: int, folder: Path) -> Spent:
    """Run `tuner.run`."""
    made = run(
        problem.task, space=str(problem.space), memory=f"{problem.memory}B", train_time=f"{problem.seconds:.3f}s",
        trials=problem.trials, seed=seed, out=folder / "run", store=folder / "store", backend="torch", earlier="none",
    )  # fmt: skip
    spent = Spent(records=made.records, refused=sum(one.state == "rejected" for one in made.records))
    for one in made.records:
        if one.state == "killed":
            print(f"trial {one.trial}: {one.reason}; expected {one.estimate}", file=sys.stderr)
            spent.note({"memory": 0.0, "train-time": 0.0, **one.constraint}, None, one.spent_seconds)
        elif one.state in SCORED and one.same_as is None:
            over = problem.over(one.values["train_seconds"], one.values["peak_bytes"])
            spent.note(over, one.values, one.spent_seconds)
    return spent


def plain(problem: Problem, seed: int, folder: Path, *, constrained: bool) -> Spent:
    """Run Optuna's TPE; a broken limit is reported as a failure, or as a constraint."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        directions=[one.optuna_direction for one in OBJECTIVES], sampler=optuna.samplers.TPESampler(seed=seed)
    )
    task, store, spent = task_from(problem.task), Store(folder / "store"), Spent()
    with open_remote(build_host(), problem.task, ["torch"], many_jobs=True) as opened:
        session, guarded = opened["torch"], JobLimits(memory_bytes=problem.memory)
        composed = Composer(problem.space, task, session)
        for _ in range(problem.trials):
            trial, began = study.ask(), time.monotonic()
            plan = composed(optuna_values(trial)).plan
            filled = session.try_fill([plan], store, guarded)
            job = Trial(plan, seed, store, folder / "weights.safetensors")
            ended: Any = session.try_train(job, guarded) if filled.value is not None else filled
            if filled.value is None or ended.value is None:
                values, over = None, problem.over(0.0, max(ended.most_bytes, problem.memory + 1))
            else:
                values = dict(ended.value.values)
                over = problem.over(values["train_seconds"], values["peak_bytes"])
            spent.note(over, values, time.monotonic() - began)
            _tell(study, trial, values, over, constrained=constrained)
    return spent


def _tell(
    study: optuna.Study,
    trial: optuna.Trial,
    values: Mapping[str, float] | None,
    over: Mapping[str, float],
    *,
    constrained: bool,
) -> None:
    if constrained:
        for name, value in over.items():
            trial.set_constraint(name, value)
    if values is not None and (constrained or max(over.values()) <= 0):
        study.tell(trial, [values[one.name] for one in OBJECTIVES])
    else:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED if constrained else optuna.trial.TrialState.FAIL)
