"""A limit that half of the search space breaks: what it costs to find that out, for us and for plain Optuna.

40 trials on each task, under `--memory` and `--train-time` that half of 256 random plans are expected to break. Arms,
each over our store and our trainers, under the same guard, every trial at full fidelity:

- ours: `tuner.run`, which refuses what is expected not to fit;
- Optuna, FAIL: its TPE; a trial that broke a limit, or was killed for one, is reported as failed;
- Optuna, constraint: its TPE; such a trial reports by how much it broke each limit.

Tasks: digits, EMG (muscle signals), and clothing (MobileNetV2 at 160 px on a few photos, any depth). Counted: trials
over a limit, seconds lost to them, plans refused, and the hypervolume of (local, global) accuracy of the trials within
the limits. How far estimates are off is in `tuner show RUN`.
"""

import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna

from benchmarks.lib.places import DATA, EXAMPLES
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.lib.setup import clothing, fewer_known
from benchmarks.limits.memory_limit import SPACE as ANY_DEPTH
from tuner.backends.base import Trial
from tuner.commands.tune.run import run
from tuner.plan.trial import TrialPlan
from tuner.planner.device import Rates
from tuner.planner.price import price
from tuner.plugin.compose import Composed, compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import ValueSource
from tuner.plugin.sources import random_values
from tuner.results.records.trial import SCORED
from tuner.results.scores.objectives import OBJECTIVES
from tuner.results.scores.pareto import area
from tuner.search.estimate.rates import rates_of
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
OURS, FAIL, CONSTRAINT = ARMS = ("ours", "Optuna, FAIL", "Optuna, constraint")
TASKS = ("digits", "EMG", "clothing")
TRIALS, QUICK_TRIALS, DRAWN = 40, 14, 256
OVER_SHARE, BEHIND = 0.03, 0.01


@dataclass
class Spent:
    """What an arm did with its trials.

    Attributes:
        memory: How many took more memory than allowed.
        time: How many took longer than allowed, within memory.
        lost: Seconds of both.
        refused: Plans that were not run.
        within: Values of the trials within the limits.
    """

    memory: int = 0
    time: int = 0
    lost: float = 0.0
    refused: int = 0
    within: list[Mapping[str, float]] = field(default_factory=list)

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


def composer(space: Path, task: Task, session: RemoteSession) -> Callable[[ValueSource], Composed]:
    """Return what composes plans of a space."""
    host, found = build_host(), load_space(str(space))
    strategies, _ = participants(host, found)
    wanted, info = wanted_knobs(found, "torch", deterministic=False), task_info(task)
    return lambda source: compose(strategies, source, session.model, info, wanted)


def task_of(name: str) -> str | Task:
    """Return a task by its name here."""
    if name == "clothing":
        return fewer_known(clothing(160, 96, 32, held=True), slice(32), slice(32))
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
    spent = Spent(refused=sum(one.state == "rejected" for one in made.records))
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
        composed = composer(problem.space, task, session)
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


def carried_out(name: str, arms: Sequence[str], trials: int, seeds: int) -> Iterator[tuple[str, int, Spent, Problem]]:
    """Yield what each arm did on a task, seed by seed."""
    with tempfile.TemporaryDirectory(prefix="tuner-benchmark-") as root:
        os.environ["TUNER_CACHE"] = root
        task, space = task_of(name), space_of(name, Path(root))
        with open_remote(build_host(), task, ["torch"], many_jobs=True) as opened:
            session = opened["torch"]
            draw, rates = random_values(random.Random(0)), rates_of(session, "torch", measure=True)
            composed = composer(space, task_from(task), session)
            memory, seconds = limits([composed(draw).plan for _ in range(DRAWN)], rates)
        problem = Problem(task, space, memory, seconds, trials)
        for seed in range(seeds):
            for arm in arms:
                folder = Path(root) / f"{arm} {seed}"
                folder.mkdir()
                spent = (
                    ours(problem, seed, folder)
                    if arm == OURS
                    else plain(problem, seed, folder, constrained=arm == CONSTRAINT)
                )
                yield arm, seed, spent, problem


def row(name: str, arm: str, spent: Spent, problem: Problem) -> Row:
    """Return what an arm did, for people."""
    return {
        "task": name, "MB allowed": problem.memory / 1e6, "s allowed": problem.seconds, "arm": arm,
        "trials": problem.trials, "over memory": spent.memory, "over time": spent.time, "s lost": spent.lost,
        "refused": spent.refused, "hypervolume": area(spent.within),
    }  # fmt: skip


def claims(spent: Mapping[str, Mapping[str, Sequence[Spent]]], trials: int) -> list[Claim]:
    """Compare the figures with the bounds."""
    found = list[Claim]()

    def claim(text: str, said: str, *, met: bool) -> None:
        found.append(Claim(text, "project's bound", said, met))

    def total(arm: str, what: Callable[[Spent], float]) -> float:
        return sum(what(one) for by_arm in spent.values() for one in by_arm.get(arm, ()))

    def paired(arm: str, what: Callable[[Spent], float]) -> list[float]:
        """Return how much more ours has, by task and seed."""
        pairs = [(by_arm.get(OURS, ()), by_arm.get(arm, ())) for by_arm in spent.values()]
        return [what(one) - what(other) for ours, theirs in pairs for one, other in zip(ours, theirs, strict=True)]

    runs = sum(len(by_arm.get(OURS, ())) for by_arm in spent.values())
    share = total(OURS, lambda one: one.memory) / max(1, runs * trials)
    claim(f"trials over the memory limit ≤ {OVER_SHARE:.0%}", f"{share:.1%}", met=share <= OVER_SHARE)
    for other in (FAIL, CONSTRAINT):
        if total(other, lambda _: 1.0):
            behind, half = interval(paired(other, lambda one: -area(one.within)))
            said = f"{-behind:+.3f} ± {half:.3f} (95 %, paired by task and seed)"
            claim(f"hypervolume at most {BEHIND} below that of {other}", said, met=behind + half <= BEHIND)
            more, half = interval(paired(other, lambda one: one.lost))
            said = f"{more:+.0f} ± {half:.0f} s (95 %, paired by task and seed)"
            claim(f"no more time lost than by {other}", said, met=more + half <= 0)
    return found


def main() -> None:
    """Run, print, write."""
    parser = benchmark_parser(__doc__, f"digits, {QUICK_TRIALS} trials: about a minute")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=ARMS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    os.environ.setdefault("TUNER_DATA", str(DATA))
    tasks, trials = (["digits"], QUICK_TRIALS) if asked.quick else (asked.tasks, asked.trials)
    rows, spent = list[Row](), dict[str, dict[str, list[Spent]]]()
    for name in tasks:
        for arm, _, one, problem in carried_out(name, asked.arms, trials, asked.seeds):
            spent.setdefault(name, {}).setdefault(arm, []).append(one)
            rows.append(row(name, arm, one, problem))
    finish("feasible", rows, claims(spent, trials), asked.json)


if __name__ == "__main__":
    main()
