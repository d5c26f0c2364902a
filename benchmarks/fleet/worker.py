"""Workers of a shared study that train nothing: processes without PyTorch, for `benchmarks.fleet`.

All that they do with the database is what `tuner` does: they join by `SharedStudy`, and claim and finish trials by
`SharedQueue`, with plans of the search space `smoke`. A trial takes a fixed time, in which a worker sleeps. What is
left out is the choice of the next plan, which takes the worker's own processor.
"""

import json
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from optuna.trial import Trial, TrialState

from tuner.errors import TunerError
from tuner.files import write_private
from tuner.plan.info import BlockInfo, ModelInfo, TaskInfo
from tuner.plan.trial import TrialPlan
from tuner.planner.device import nominal
from tuner.planner.price import Estimate
from tuner.plugin.compose import Composed, StrategyError, compose
from tuner.plugin.core import build_host
from tuner.plugin.knobs import ValueSource
from tuner.plugin.sources import preferred_values, random_values
from tuner.results.folder import Identity, RunInfo
from tuner.results.records.config import Budget, RunConfig
from tuner.results.records.trial import TrialRecord
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.remote import open_remote
from tuner.search.rungs import at_rung
from tuner.search.setting import Setting, participants, wanted_knobs
from tuner.search.space import load_space
from tuner.search.trials.journal import PRIOR, RUNG, optuna_values, origin_of, place_of
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.study.claims import key_of
from tuner_fleet.study.heartbeat import BEAT, GRACE
from tuner_fleet.study.join import SharedStudy

BLOCKS = tuple(BlockInfo(f"b{at}", f"cut{at}", (4, 2, 2), 1_000_000, 1_000, 4_096) for at in range(4))
MODEL = ModelInfo("made-up", "model", 4, BLOCKS)
TASK = TaskInfo("made-up", "task", 600, 60, (200, 200), 80)
Shape = tuple[ModelInfo, TaskInfo]
#: Names of orders: work until a clock, or take what waits until nothing is left; and the files of each worker.
ORDER, DRAIN, READY, FINISHED = "order", "drain", "ready", "finished"
#: Attribute of trials that were put in the queue.
QUEUED = "queued"
#: One plan in so many goes to the next rung.
PROMOTED = 3
#: Plans that are put in the queue are of a pool of so many, and workers suggest plans of it as often as others.
POOL, OFTEN = 60, 0.5
POLL = 0.02


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker needs to know.

    Attributes:
        url: Address of the study.
        base: Folder of all workers of the study, where orders are.
        name: The worker's own folder in it.
        pad: Seconds that a trial takes.
        beat: See `tuner_fleet.study.heartbeat`.
        grace: Likewise.
        rungs: Whether plans are tried on a lower rung first.
        queued: Plans that it puts in the queue when it joins: first plans, and as many of a prior, which are tried on
            the top rung.
        of: Model and task of the plans.
    """

    url: str
    base: Path
    name: str
    pad: float
    beat: float = BEAT
    grace: float = GRACE
    rungs: bool = False
    queued: int = 0
    of: Shape = (MODEL, TASK)


class Worker:
    """One worker, which carries orders out."""

    def __init__(self, part: Part) -> None:
        self._part, self._folder = part, part.base / part.name
        self._folder.mkdir()
        self._random, self._lowest = random.Random(part.name), 1 if part.rungs else 0
        self._space = load_space("smoke")
        self._strategies, objectives = participants(build_host(), self._space)
        self._wanted = wanted_knobs(self._space, "torch", deterministic=True)
        self._stack = ExitStack()
        storage = self._stack.enter_context(opened(read_address(part.url)))
        self._shared = SharedStudy(read_address(part.url), storage, Listener().say, Interrupt(), None)
        identity = Identity("task", "smoke", 0, deterministic=False)
        model, task = part.of
        info = RunInfo(identity, RunConfig("made-up"), "made-up", "smoke", 1, model, task, tuple(objectives))
        limits, kind = Budget(trials=10**6), self._shared.kind
        fixed = (self._strategies, objectives, self._wanted, "tpe", 0, False, model, task, nominal(model), limits, None)
        self._setting = Setting(*fixed, self._folder, kind=kind)
        self._queue, _ = self._shared.join(self._setting, info, part.beat, part.grace)
        self._records, self._ended = list[TrialRecord](), dict[str, TrialRecord]()
        self._note(self._queue.records)
        draw = random.Random(0)
        self._pool = [self._composed_by(draw) for _ in range(POOL if part.queued else 0)]
        for number in range(part.queued):
            for place in ({QUEUED: True}, {QUEUED: True, RUNG: 0, PRIOR: number}):
                self._queue.enqueue(self._random.choice(self._pool), place)
        (self._folder / READY).touch()

    def run(self) -> None:
        """Carry orders out until all is drained."""
        done = ""
        while True:
            name, until = read_order(self._part.base)
            if name == DRAIN:
                break
            if name == done:
                time.sleep(POLL)
                continue
            done = name
            self._work(name, until)
        while self._left():
            if not self.trial(new=False):
                time.sleep(10 * POLL)
        self.leave()

    def leave(self) -> None:
        """End."""
        self._shared.leave()
        self._stack.close()

    def _work(self, name: str, until: float) -> None:
        time.sleep(self._part.pad * self._random.random())  # workers do not begin their trials all at once
        trials, begun, ended, processor = 0, time.time(), time.time(), time.process_time()
        while time.time() < until and read_order(self._part.base)[0] == name:
            trials += self.trial()
            ended = time.time()
        found = {"trials": trials, "seconds": ended - begun, "processor": time.process_time() - processor}
        write_private(self._folder / f"{name}.json", json.dumps(found), durable=False)

    def trial(self, *, new: bool = True) -> bool:
        """Carry a trial through; return whether one ended.

        Args:
            new: Whether a plan may be begun that nobody has begun.
        """
        queue = self._queue
        self._note(queue.news())
        if queue.is_begun() or (trial := self._next(new=new)) is None:
            return False
        begun, origin = time.monotonic(), origin_of(trial)
        composed = self._compose(optuna_values(trial))
        plan = at_rung(composed.plan, origin[RUNG])
        if (ended := self._ended.get(key_of(plan))) is not None:
            record = replace(ended, **origin, trial=trial.number, same_as=ended.trial)
            return queue.finish(trial, record, 0.0)
        if not queue.hold(trial, plan):
            return False
        time.sleep(max(0.0, begun + self._part.pad - time.monotonic()))
        draw, pad = self._random.random, self._part.pad
        values = {"local_accuracy": draw(), "global_accuracy": draw(), "train_seconds": pad, "peak_bytes": 1e7 * draw()}
        record = TrialRecord(
            trial.number, "done", plan, composed.values, values, Estimate(pad, pad, 10_000_000, 100_000),
            spent_seconds=pad,
            epochs=tuple({"loss": draw(), "seconds": pad / plan.recipe.epochs} for _ in range(plan.recipe.epochs)),
            kind=self._setting.kind, **origin,
        )  # fmt: skip
        if not queue.finish(trial, record, 0.0):
            return False
        self._note([record])
        with (self._folder / FINISHED).open("a") as file:
            file.write(f"{trial.number}\n")
        return True

    def _next(self, *, new: bool) -> Trial | None:
        trial = self._queue.waiting(self._lowest)
        if trial is not None or not new:
            return trial
        for record in self._records if self._lowest else ():
            if record.rung == self._lowest and record.trial % PROMOTED == 0 and not self._is_promoted(record):
                composed = self._compose(preferred_values(record.knobs))
                if not self._queue.is_taken(composed.plan):
                    return self._queue.claim(composed, composed.plan, place_of(record, 0))
        composed, plan = self._drawn()
        return self._queue.claim(composed, plan, {RUNG: self._lowest})

    def _note(self, records: Sequence[TrialRecord]) -> None:
        self._records += records
        trained = [one for one in records if one.same_as is None]
        self._ended |= {key_of(one.plan): one for one in trained if one.plan is not None}

    def _is_promoted(self, record: TrialRecord) -> bool:
        return any(one.promoted == record.config for one in self._records)

    def _drawn(self) -> tuple[Composed, TrialPlan]:
        """Return a plan that nobody has begun, as far as this worker knows."""
        while True:
            is_queued = self._pool and self._random.random() < OFTEN
            composed = self._random.choice(self._pool) if is_queued else self._composed_by(self._random)
            plan = at_rung(composed.plan, self._lowest)
            if key_of(plan) not in self._ended and not self._queue.is_taken(plan):
                return composed, plan

    def _composed_by(self, draw: random.Random) -> Composed:
        while True:
            with suppress(TunerError, StrategyError):
                return self._compose(random_values(draw))

    def _compose(self, source: ValueSource) -> Composed:
        return compose(self._strategies, source, *self._part.of, self._wanted)

    def _left(self) -> bool:
        states = TrialState.RUNNING, TrialState.WAITING
        return bool(self._queue.study.get_trials(deepcopy=False, states=states))


def shape_of(task: str) -> Shape:
    """Return the model and the task of a task's plans; a process of its own opens it, with PyTorch."""
    with open_remote(build_host(), task, ["torch"]) as sessions:
        return sessions["torch"].model, sessions["torch"].task.info


def work(part: Part) -> None:
    """Be a worker until all is drained."""
    Worker(part).run()


def read_order(base: Path) -> tuple[str, float]:
    """Return the name of the order, and the clock (`time.time`) until when it holds."""
    try:
        name, until = (base / ORDER).read_text().rsplit(maxsplit=1)
    except FileNotFoundError:
        return "", 0.0
    return name, float(until)


def give_order(base: Path, name: str, until: float) -> None:
    """Let all workers carry an order out."""
    write_private(base / ORDER, f"{name} {until}", durable=False)
