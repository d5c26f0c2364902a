"""The record of a trial: what it measured, which limit it broke, and by how much; and how the base model scores."""

import math
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tuner.errors import BudgetError, DivergedError, TunerError, trace_of
from tuner.files import check_room
from tuner.machine.awake import CLOCK
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import weight_bytes
from tuner.planner.device import NOMINAL_FLOPS
from tuner.planner.price import price
from tuner.planner.tail_terms import network_values
from tuner.plugin.compose import StrategyError
from tuner.results.kinds import cost_constraints
from tuner.results.records.trial import Outcome, TrialRecord, TrialState
from tuner.search.fill.filling import UnfilledError
from tuner.search.listener import SCORING, Listener
from tuner.search.processes.guard import SAFE_SHARE, JobResult
from tuner.search.processes.messages import Failure
from tuner.search.propose.structures import DIVERGED
from tuner.search.rungs import FINAL, FINAL_FOLDS, SAMPLES
from tuner.search.setting import Setting
from tuner.units import format_limit

#: A trial that fails with less room on the disk may have failed for that.
ROOM_BYTES = 1_000_000


def record_of(
    setting: Setting, base: TrialRecord, result: JobResult[Outcome], fill_seconds: float, given: Mapping[str, float]
) -> TrialRecord:
    """Return the record of a trial that was run: ``base`` and how its job ended.

    One that the user ended, or that failed while the disk was full, has none: a resumed run runs it again.
    """
    limits = setting.limits
    if result.verdict == "interrupted":
        raise KeyboardInterrupt
    if result.value is not None:
        return scored_record(setting, base, result.value, fill_seconds, given)
    if reason := _out_of_memory(result, limits.memory_bytes):
        over = math.log(result.most_bytes / limits.memory_bytes) if limits.memory_bytes else 0.0
        return replace(base, state="killed", reason=reason, constraint={"memory": max(over, 1 - SAFE_SHARE)})
    if result.verdict == "deadline":
        reason = "--time: it did not end before the time was up"
        return replace(base, state="killed", reason=reason, constraint={"time": 0.1})
    failure = result.failure or Failure(f"its process {result.ending}")
    if failure.unsupported:
        return replace(base, state="rejected", reason=failure.text, constraint={"support": 1.0})
    if failure.error == DivergedError.__name__:
        return replace(base, reason=f"diverged: {failure.text}", constraint={DIVERGED: 1.0})
    if result.failure is not None:
        refuse_full_disk(setting, base.plan)
    notes = (failure.trace,) if failure.trace else ()
    return replace(base, reason=failure.text, notes=(*base.notes, *notes), constraint={"failed": 1.0})


def _out_of_memory(result: JobResult[Outcome], limit: int | None) -> str:
    """Return why a job was ended for its memory; empty where it was not."""
    if result.verdict == "memory" and limit:
        return f"--memory: took {result.most_bytes / 1e6:,.0f} MB, but {format_limit(limit)} are allowed"
    return f"its process {result.ending}" if result.out_of_memory and result.exit_code == -signal.SIGKILL else ""


def refuse_full_disk(setting: Setting, plan: TrialPlan | None = None) -> None:
    """Raise OSError where the disk has no room for a trial's files: no trial and no strategy is to blame.

    The trial has no record, and a resumed run runs it again.
    """
    for folder in (setting.folder, Path(tempfile.gettempdir())):
        check_room(folder, ROOM_BYTES + (weight_bytes(plan) if plan else 0))


def scored_record(
    setting: Setting, base: TrialRecord, outcome: Outcome, fill_seconds: float, given: Mapping[str, float]
) -> TrialRecord:
    """Return the record of a trial that was scored, its costs compared with every limit."""
    plan, notes = base.plan, (*base.notes, *outcome.notes)
    if plan is None:
        raise ValueError("an outcome needs a plan")
    rates = setting.rates.at(plan.size)
    values = {"train_seconds": math.nan, "peak_bytes": math.nan, **network_values(plan), **outcome.values}
    if "mean_flops" not in outcome.values:  # every sample runs through what was trained, which may have grown
        values["mean_flops"] = values["flops"]
    if setting.deterministic:
        values["mean_latency_seconds"] = values["mean_flops"] / NOMINAL_FLOPS
    elif rates.latency_seconds:  # a trial measures its share of the whole, not the moment it ran in
        share = values.get("mean_latency_seconds", 1.0) / (values.get("whole_latency_seconds") or 1.0)
        values["mean_latency_seconds"] = share * rates.latency_seconds
    if setting.deterministic:
        values["train_seconds"] = price(plan, setting.rates).train_seconds
        values["peak_bytes"] = float(price(plan, setting.rates).peak_bytes)
    elif plan.cached:
        values["fill_seconds"] = plan.pool_samples * fill_seconds
        values["peak_bytes"] = max(values["peak_bytes"], float(rates.fill_peak_bytes))
    wanted = dict.fromkeys([*(objective.name for objective in setting.objectives), "train_seconds", "peak_bytes"])
    missing = [name for name in wanted if not math.isfinite(values.get(name, math.nan))]
    if missing:
        raised = (note for note in outcome.notes if note.startswith("measure "))
        reason = "; ".join([f"it gave no finite value of {', '.join(missing)}", *raised])
        return replace(base, reason=reason, notes=notes, constraint={"failed": 1.0})
    state: TrialState = "stopped" if outcome.stopped else "done"
    limits = setting.limits
    constraint = cost_constraints(values, limits)
    if limits.forgetting is not None and "global_accuracy" in given and "global_accuracy" in values:
        constraint["forget-at-most"] = given["global_accuracy"] - values["global_accuracy"] - limits.forgetting
    return replace(
        base,
        state=state,
        values=values,
        reason=outcome.stopped,
        epochs=outcome.epochs,
        notes=notes,
        constraint=constraint,
        classes=outcome.classes,
        right=outcome.right,
    )


def uncomposed_record(base: TrialRecord, error: TunerError | StrategyError) -> TrialRecord:
    """Record that a plan could not be composed; with the trace of a strategy's exception."""
    if isinstance(error, TunerError):
        return replace(base, reason=str(error))
    trace = trace_of(error.__cause__ or error)
    return replace(base, reason=str(error), notes=(trace,), constraint={"failed": 1.0})


def unfilled_record(base: TrialRecord, error: TunerError) -> TrialRecord:
    """Record that a plan's features could not be computed: refused for a limit, failed for all else."""
    if isinstance(error, UnfilledError):
        return replace(base, state="rejected", reason=str(error), constraint=error.constraint)
    line, _, trace = str(error).partition("\n")
    return replace(base, reason=line, notes=(*base.notes, *([trace] if trace else [])), constraint={"failed": 1.0})


class Baselines:
    """Scores the given model once for every rung that a trial is scored on, by its share of the validation samples.

    After the first trial of a rung that the search does not leave at once, other baselines are fitted: they read its
    features, and delay no member of a front.
    """

    def __init__(
        self,
        score: Callable[[float, int], Mapping[str, float]],
        compare: Callable[[float, int], None],
        setting: Setting,
        listener: Listener,
    ) -> None:
        self._score, self._compare, self._setting, self._listener = score, compare, setting, listener
        self._known: dict[int, Mapping[str, float]] = {}
        self._compared = 0.0, 0
        self.seconds = 0.0

    def floor(self, rung: int) -> float:
        """Return the local accuracy that comes free: the given model's, or that of the most frequent class."""
        return max(self._setting.task.most_frequent, self.on(rung).get("local_accuracy", 0.0))

    def compare(self, rung: int) -> None:
        """Fit the others on a rung's samples, unless they were; without them where that fails."""
        if self._compared >= (samples := self._samples(rung)):
            return
        self._compared, started = samples, CLOCK.now()
        try:
            self._compare(*samples)
        except TunerError as error:
            self._listener.say(f"warning: {error}")
        finally:
            self.seconds += CLOCK.now() - started

    def on(self, rung: int) -> Mapping[str, float]:
        """Return the scores on a rung's samples; those on another rung's where the time is up."""
        if rung not in self._known:
            started = CLOCK.now()
            self._listener.phase(SCORING)
            try:
                self._known[rung] = self._score(*self._samples(rung))
            except BudgetError as error:
                self._listener.say(f"warning: {error}")
                self._known[rung] = next(iter(self._known.values()), {})
            finally:
                self.seconds += CLOCK.now() - started
        return self._known[rung]

    def _samples(self, rung: int) -> tuple[float, int]:
        """Return the share of the samples that a rung's plans have, and the folds that judge them."""
        if rung == FINAL:
            return 1.0, FINAL_FOLDS
        return SAMPLES**rung, 0 if rung else self._setting.folds
