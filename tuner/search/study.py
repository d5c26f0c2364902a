"""The loop of a study: ask, compose, predict, run under guard, teach."""

import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import optuna
from optuna.trial import Trial, TrialState

from tuner.backends.base import CHECKPOINT
from tuner.compose import Composed, compose
from tuner.errors import TunerError
from tuner.host import Host
from tuner.knobs import Scalar, Source, Wanted, at_random, preferring
from tuner.plan import ModelInfo, TaskInfo, TrialPlan
from tuner.planner import cost
from tuner.results.objectives import Objective
from tuner.results.pareto import front
from tuner.results.records import SCORED, Estimate, TrialRecord, binding, eligible
from tuner.search.config import Limits
from tuner.search.events import Listener
from tuner.search.filling import Filler
from tuner.search.jobs import Job
from tuner.search.journal import RECORD, finished, next_trial, seeded, suggesting
from tuner.search.judging import judged, unfilled, unsupported
from tuner.search.peaks import limited
from tuner.search.supervisor import Limits as JobLimits
from tuner.search.supervisor import Supervisor
from tuner.store.store import Store, disk_bytes
from tuner.strategy import Strategy

REFUSALS_IN_A_ROW = 50
FAILURES_OF_A_PLUGIN = 3
#: Kept free at the end for writing results and leaving.
CLOSING_SECONDS = 0.8
#: A full fine-tuning anchor is tried only if it is expected to take at most this share of the time.
FULL_SHARE = 0.1
LEARNS_FROM = 10
#: Of ``--storage``, for the journal, scales and other small files.
RUN_RESERVE = 2_000_000
ANCHORS: tuple[dict[str, Scalar], ...] = (
    {"freeze.trainable_blocks": 1, "cache.by": "cache", "cache.bits": 8},
    {"freeze.trainable_blocks": 3, "cache.by": "cache", "cache.bits": 8},
)
FULL_ANCHOR: dict[str, Scalar] = {"freeze.trainable_blocks": 10**6, "cache.by": "none", "recipe.learning_rate": 3e-4}
PREFERRED: dict[str, Scalar] = {
    "gdm.alpha": 0.05,
    "cache.augment": 0.0,
    "none.augment": 0.0,
    "recipe.epochs": 8,
    "recipe.batch_size": 32,
    "recipe.optimiser": "adamw",
    "recipe.learning_rate": 1e-3,
    "recipe.schedule": "cosine",
    "recipe.freeze_bn": True,
    "recipe.micro_batches": 1,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a study is about; none of it changes while it runs.

    Attributes:
        strategies: Those that take part.
        objectives: What counts.
        wanted: What the search space and the command line want of each knob.
        sampler: ``tpe`` or ``random``.
        seed: Of the study.
        deterministic: Whether costs come from FLOPs instead of clocks.
        model: Its blocks.
        task: Its sizes.
        rates: Of this device.
        limits: The user's.
        end: Clock (`time.monotonic`) at which the command must be over; None for never.
        folder: The run's.
    """

    strategies: Sequence[Strategy[Any]]
    objectives: Sequence[Objective]
    wanted: Mapping[str, Wanted]
    sampler: str
    seed: int
    deterministic: bool
    model: ModelInfo
    task: TaskInfo
    rates: cost.Rates
    limits: Limits
    end: float | None
    folder: Path


class Study:
    """Runs trials until a limit, the space or the user ends it."""

    def __init__(
        self,
        setting: Setting,
        host: Host,
        journal: optuna.Study,
        supervisor: Supervisor,
        store: Store,
        listener: Listener,
    ) -> None:
        self._setting = setting
        self._host = host
        self._journal = journal
        self._supervisor = supervisor
        self._store = store
        self._listener = listener
        self._strategies = list(setting.strategies)
        self._blame: dict[str, int] = {}
        template = TrialPlan(model=setting.model, task=setting.task)
        self.records = [TrialRecord.from_dict(trial.user_attrs[RECORD], template) for trial in finished(journal)]
        self._seen = {record.plan.key(): record for record in self.records if record.plan and _trained(record)}
        self._filler = Filler(setting, supervisor, store, listener)
        self.ended = ""

    def prepare(self) -> None:
        """Put the first plans in the queue and fill the store for all that may follow.

        Raises:
            BudgetError: The limits leave no room for one trial.
        """
        self._tell_untold()
        anchors = self._enqueue_anchors()
        self._filler.prepare([*anchors, *self._reachable()])

    def run(self) -> None:
        """Run until the end; `ended` then says what ended it."""
        idle = 0
        while not (reason := self._over(idle)):
            self._supervisor.interrupt.check()
            trial = next_trial(self._journal, self._setting.sampler, self._setting.seed)
            record = self._try(trial)
            self._keep(trial, record)
            idle = 0 if record.state in SCORED and record.same_as is None else idle + 1
        self.ended = reason

    def front(self) -> list[int]:
        """Return the numbers of the trials on the Pareto front."""
        members = {record.trial: record.values for record in self.records if eligible(record)}
        return front(members, self._setting.objectives)

    @property
    def filled_samples(self) -> int:
        """Samples that went through the prefix in this study's own filling passes."""
        return self._filler.samples

    def storage_bytes(self) -> int:
        """Return the bytes of the store."""
        return self._store.nbytes

    def _over(self, idle: int) -> str:
        limits, spent = self._setting.limits, [record for record in self.records if record.state != "rejected"]
        real = [record for record in spent if record.same_as is None]
        if limits.trials is not None and len(real) >= limits.trials:
            return f"{limits.trials} trials are done"
        if self._left() <= CLOSING_SECONDS:
            return "the time is up"
        if idle >= REFUSALS_IN_A_ROW:
            return f"{idle} plans in a row were {self._binding(idle)}"
        if not self._strategies:
            return "every strategy was put out of the study"
        return ""

    def _binding(self, idle: int) -> str:
        """Say what kept the last plans from running."""
        last = self.records[-idle:]
        broken = [name for record in last for name in record.constraint if record.state == "rejected"]
        repeats = sum(record.same_as is not None for record in last)
        if repeats > len(broken):
            return "tried before: the search space has nothing new"
        if not broken:
            return "failures"
        return f"refused, most of them for {binding(max(set(broken), key=broken.count))}"

    def _left(self) -> float:
        return math.inf if self._setting.end is None else self._setting.end - time.monotonic()

    def _compose(self, source: Source) -> Composed:
        setting = self._setting
        composed = compose(self._strategies, source, setting.model, setting.task, setting.wanted)
        return replace(composed, plan=limited(composed.plan, setting))

    def _reachable(self) -> Iterator[TrialPlan]:
        """Yield plans drawn at random: what the study may ask the store for."""
        draw = at_random(random.Random(0))
        for _ in range(128):
            try:
                yield self._compose(draw).plan
            except TunerError:
                raise
            except Exception:  # noqa: BLE001 - a plugin's strategy may raise anything; its own trial will say what
                return

    def _enqueue_anchors(self) -> list[TrialPlan]:
        """Put the plans that suit most tasks first, so that a tiny budget already gives a useful front."""
        plans: list[TrialPlan] = []
        setting = self._setting
        for anchor in (*ANCHORS, FULL_ANCHOR):
            try:
                composed = self._compose(preferring({**PREFERRED, **anchor}))
            except TunerError:
                raise
            except Exception:  # noqa: BLE001 - as in _reachable
                break
            budget = setting.limits.time_seconds
            if anchor is FULL_ANCHOR:
                whole = composed.plan.split == 0
                spend = cost.estimate(composed.plan, setting.rates).spend_seconds
                if not whole or (budget is not None and spend > FULL_SHARE * budget):
                    continue
            if composed.plan.key() not in {plan.key() for plan in plans}:
                plans.append(composed.plan)
                if not self.records:
                    open_values = {
                        name: composed.values[name] for name in composed.values if not composed.knobs[name].fixed
                    }
                    self._journal.enqueue_trial(open_values, skip_if_exists=True)
        return plans

    def _try(self, trial: Trial) -> TrialRecord:
        """Carry one suggestion through to its record."""
        started = time.monotonic()
        base = TrialRecord(trial=trial.number, state="failed", plan=None)
        try:
            composed = self._compose(suggesting(trial))
        except TunerError as error:
            return replace(base, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a plugin's strategy may raise anything
            return self._blamed(base, error)
        base = replace(base, plan=composed.plan, knobs=composed.values)
        seen = self._seen.get(composed.plan.key())
        if seen is not None:
            return replace(seen, trial=trial.number, knobs=composed.values, same_as=seen.trial, spent_seconds=0.0)
        estimate = self._filler.estimate(composed.plan, self.records)
        refused, constraint = self._refusal(composed.plan, estimate)
        base = replace(base, estimate=estimate)
        if refused:
            return replace(base, state="rejected", reason=refused, constraint=constraint)
        self._make_room(composed.plan)
        try:
            self._filler.fill([composed.plan])
        except TunerError as error:
            return unfilled(base, error)
        ended = self._supervisor.run(self._job(trial.number, composed.plan), self._job_limits(estimate), self._progress)
        base = replace(base, spent_seconds=time.monotonic() - started)
        return judged(self._setting, base, ended, self._filler.seconds_each(composed.plan))

    def _job(self, number: int, plan: TrialPlan) -> Job:
        arguments = {
            "plan": plan,
            "seed": seeded(self._setting.seed, plan.key()),
            "store": self._store,
            "weights": self._weights(number),
        }
        limited = self._setting.limits.memory_bytes is not None and not plan.cached  # its prefix runs beside the steps
        return Job(plan.runtime.backend, "train", arguments, reports=True, frees=limited)

    def _job_limits(self, estimate: Estimate) -> JobLimits:
        end = self._setting.end
        if end is None:
            return JobLimits(memory_bytes=self._setting.limits.memory_bytes)
        scoring = max(0.5, 0.5 * (estimate.spend_seconds - estimate.train_seconds))
        return JobLimits(end - CLOSING_SECONDS - scoring, end - CLOSING_SECONDS / 2, self._setting.limits.memory_bytes)

    def _progress(self, progress: Mapping[str, Any]) -> None:
        if "warning" in progress:
            self._listener.say(f"warning: {progress['warning']}")
        elif "step" in progress:
            self._listener.step("training", progress["step"], progress["steps"])

    def _refusal(self, plan: TrialPlan, estimate: Estimate) -> tuple[str, dict[str, float]]:
        """Return why a plan is not run, and by how much it breaks each limit, as log(value / limit)."""
        reason = self._host.backend(plan.runtime.backend).supports(plan) or unsupported(plan, self.records)
        if reason:
            return reason, {"support": 1.0}
        limits, said, broken = self._setting.limits, [], {}
        left = self._left() - CLOSING_SECONDS
        wants = (
            ("time", estimate.spend_seconds, left if math.isfinite(left) else None, "s", 1.0),
            ("train-time", estimate.train_seconds, limits.train_seconds, "s", 1.0),
            ("memory", estimate.peak_bytes, limits.memory_bytes, "MB", 1e6),
            ("storage", estimate.storage_bytes, self._storage_left(), "MB", 1e6),
        )
        for name, value, limit, unit, scale in wants:
            if limit is not None and value > limit:
                broken[name] = math.log(value / max(limit, 1e-3))
                said.append(f"--{name}: needs {value / scale:,.3g} {unit} of {limit / scale:,.3g} {unit} left")
        return "; ".join(said), broken

    def _storage_left(self) -> int | None:
        """Return what ``--storage`` leaves for features and new weights beside what the run keeps already."""
        limit = self._setting.limits.storage_bytes
        return None if limit is None else max(0, limit - disk_bytes(self._setting.folder) - RUN_RESERVE)

    def _make_room(self, plan: TrialPlan) -> None:
        """Hold the store to what ``--storage`` leaves once the plan's weights are written."""
        left = self._storage_left()
        if left is not None:
            self._store.cap_bytes = max(0, left - cost.weight_bytes(plan))
            self._store.room(0)

    def _blamed(self, base: TrialRecord, error: Exception) -> TrialRecord:
        """Record a strategy's exception; a strategy that keeps raising is put out of the study."""
        import traceback

        frames = traceback.extract_tb(error.__traceback__)
        files = {strategy: type(strategy).__module__ for strategy in self._strategies}
        import sys

        guilty = next(
            (
                strategy
                for frame in reversed(frames)
                for strategy, module in files.items()
                if getattr(sys.modules.get(module), "__file__", None) == frame.filename
            ),
            None,
        )
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        if guilty is not None:
            line = f"strategy {guilty.name!r}: {line}"
            self._blame[guilty.name] = self._blame.get(guilty.name, 0) + 1
            if self._blame[guilty.name] >= FAILURES_OF_A_PLUGIN:
                self._strategies.remove(guilty)
                self._listener.say(f"{line}; it raised {FAILURES_OF_A_PLUGIN} times and takes no further part")
        trace = "".join(traceback.format_exception(error))
        return replace(base, reason=line, notes=(trace,), constraint={"failed": 1.0})

    def _keep(self, trial: Trial, record: TrialRecord) -> None:
        """Write the record first, tell Optuna after: a record on disk is a finished trial."""
        trial.set_user_attr(RECORD, json.loads(json.dumps(record.to_dict())))
        self._tell(trial, record)
        self.records.append(record)
        if record.plan is not None and _trained(record):
            self._seen[record.plan.key()] = record
        self._weights(record.trial).with_name(CHECKPOINT).unlink(missing_ok=True)
        kept = set(self.front())
        for other in self.records:
            if other.trial not in kept:
                self._weights(other.trial).unlink(missing_ok=True)
        self._host.trial_done(str(self._setting.folder), record)
        self._listener.trial(record)

    def _tell(self, trial: Trial, record: TrialRecord) -> None:
        for name, value in record.constraint.items():
            if name not in trial.storage.get_trial(trial._trial_id).constraints:  # noqa: SLF001 - told before a kill
                trial.set_constraint(name, value)
        if record.state in SCORED:
            values = [record.values[one.name] for one in self._setting.objectives]
            self._journal.tell(trial, values)
        else:
            self._journal.tell(trial, state=TrialState.PRUNED)

    def _tell_untold(self) -> None:
        """Tell Optuna of a trial whose record was written before a kill."""
        by_number = {record.trial: record for record in self.records}
        for frozen in finished(self._journal):
            if frozen.state == TrialState.RUNNING:
                self._tell(Trial(self._journal, frozen._trial_id), by_number[frozen.number])  # noqa: SLF001 - as in next_trial

    def _weights(self, number: int) -> Path:
        return self._setting.folder / "trials" / str(number) / "weights.safetensors"


def learned(records: Sequence[TrialRecord], value: Callable[[TrialRecord], tuple[float, float] | None]) -> float:
    """Return the median of measured over expected, of the last trials; 1 where there are none."""
    pairs = [pair for record in records if record.same_as is None and (pair := value(record)) is not None]
    ratios = [measured / expected for measured, expected in pairs[-LEARNS_FROM:] if expected > 0]
    return min(5.0, max(0.2, median(ratios))) if ratios else 1.0


def _trained(record: TrialRecord) -> bool:
    """Return whether the record is that of a plan's own training: a refusal may end differently another time."""
    return record.same_as is None and record.state != "rejected"


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))
