"""The cost of a plan on this device: from measured rates, calibrated by what finished trials cost."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tuner.backends.base import Session
from tuner.errors import TunerError
from tuner.plan.trial import TrialPlan
from tuner.planner.device import Rates
from tuner.planner.memory.step import StepPlan
from tuner.planner.price import Estimate, price
from tuner.planner.tail_terms import worth_planning
from tuner.results.records.trial import SCORED, TrialRecord
from tuner.search.estimate.calibration import Calibration, Errors, Observation
from tuner.search.estimate.step_memory import StepBytes, planned_bytes
from tuner.search.setting import Setting

#: A plan whose rough estimate is so many times the limit is refused on that.
SURELY_OVER = 4
#: The last trials that estimates learn from.
LEARNS_FROM = 64
#: Standard deviations of log(measured / expected) before any trial, from trials of clothing, digits and muscle signals
#: (`benchmarks.search.feasible`): of a part of the estimate, of a kind of plan, of a cut, and between equal trials.
PART_BYTES, KIND_BYTES, CUT_BYTES, NOISE_BYTES = 0.2, 0.1, 0.05, 0.03
PART_SECONDS, READY_SECONDS, KIND_SECONDS, CUT_SECONDS, NOISE_SECONDS = 0.5, 1.0, 0.3, 0.4, 0.25
#: Share of measured values within the interval that a refusal names: of memory wide, as a trial that is killed is lost;
#: of time narrow, as one that takes a little longer is not.
MEMORY_LEVEL, TIME_LEVEL = 0.9, 0.5


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan is expected to cost: calibrated medians, and the plain ones before finished trials corrected them.

    `TIME_LEVEL` of the seconds and `MEMORY_LEVEL` of the peaks that are measured lie between low and high.
    """

    estimate: Estimate
    plain: Estimate
    low: Estimate
    high: Estimate


class Memory(NamedTuple):
    """Bytes of training as estimated, what their error depends on, and the least that a record says: filling's."""

    nbytes: int
    errors: Errors
    least: int


#: What each of the last trials shows, by its number; None where that is nothing.
_Seen = dict[int, Observation | None]


class Forecast:
    """Estimates plans of one study.

    Where ``--memory`` is given, the peak is the planner's if the planned executor will run the steps; and that of its
    start if the tail changes while it trains, which then obeys the limit itself.
    """

    def __init__(self, setting: Setting, sessions: Mapping[str, Session]) -> None:
        self._setting, self._sessions = setting, sessions
        self._steps: dict[Any, StepBytes | None] = {}
        self._seconds, self._bytes = Calibration(NOISE_SECONDS), Calibration(NOISE_BYTES)
        self._seconds_seen, self._bytes_seen = _Seen(), _Seen()
        self._learned_after: tuple[int, int, int] | None = None

    def expected(
        self,
        plan: TrialPlan,
        missing: int,
        records: Sequence[TrialRecord],
        pace: float = 1.0,
        due: TrialPlan | None = None,
    ) -> Expected:
        """Return what a plan will cost, and how sure that is; the planner may be asked where memory is limited.

        ``missing`` samples are not stored yet, and filling takes ``pace`` times what the rates say; of a plan that
        continues a trial, ``due`` is still to be trained.
        """
        plain = price(plan, self._setting.rates).estimate(missing)
        if due is not None:
            plain = replace(plain, spend_seconds=price(due, self._setting.rates).estimate(missing).spend_seconds)
        if self._setting.deterministic:
            return Expected(plain, plain, plain, plain)
        self._learn(records)
        memory, errors = self._memory(plan, ask=True), seconds_errors(plan, self._setting.rates)
        spend = self.spend_seconds(plan if due is None else due, missing, records, pace)

        def scaled(seconds: float, nbytes: float) -> Estimate:
            peak = max(memory.least, int(nbytes * memory.nbytes))
            return Estimate(seconds * plain.train_seconds, seconds / train * spend, peak, plain.storage_bytes)

        train, peak = self._seconds.factor(errors), self._bytes.factor(memory.errors)
        longer = self._seconds.spread(errors, (1 + TIME_LEVEL) / 2) if self._seconds.trials else 1.0
        # no interval where the trial obeys the limit itself, nor before the first trial: a study that refuses all plans
        # for what it does not know never learns
        is_wide = self._bytes.trials and not plan.traits.changes_shapes
        larger = self._bytes.spread(memory.errors, (1 + MEMORY_LEVEL) / 2) if is_wide else 1.0
        return Expected(
            scaled(train, peak),
            replace(plain, peak_bytes=max(memory.least, memory.nbytes)),
            scaled(train / longer, peak / larger),
            scaled(train * longer, peak * larger),
        )

    def spend_seconds(self, plan: TrialPlan, missing: int, records: Sequence[TrialRecord], pace: float = 1.0) -> float:
        """Return what is still to be paid for a plan, in no time; arguments as for `expected`."""
        rates = self._setting.rates
        if self._setting.deterministic:
            return price(plan, rates).estimate(missing).spend_seconds
        self._learn(records)
        priced, factor = price(plan, rates), self._seconds.factor(seconds_errors(plan, rates))
        return priced.trial_seconds * factor + pace * priced.unpaid_seconds(missing)

    def _learn(self, records: Sequence[TrialRecord]) -> None:
        """Calibrate, once after each trial, and after each step that the planner was asked for."""
        after = (len(records), records[-1].trial if records else -1, len(self._steps))
        if after == self._learned_after:
            return
        if self._learned_after is None or self._learned_after[2] != after[2]:
            self._bytes_seen.clear()  # the planner's figures are known of more trials now
        self._learned_after = after
        own = (record for record in records if record.kind == self._setting.kind)
        last = [record for record in own if record.plan is not None and record.same_as is None][-LEARNS_FROM:]

        def kept(seen: _Seen, observe: Callable[[TrialRecord], Observation | None]) -> _Seen:
            return {one.trial: seen[one.trial] if one.trial in seen else observe(one) for one in last}

        self._seconds_seen = kept(self._seconds_seen, self._observed_seconds)
        self._bytes_seen = kept(self._bytes_seen, self._observed_bytes)
        self._seconds.fit([one for one in self._seconds_seen.values() if one is not None])
        self._bytes.fit([one for one in self._bytes_seen.values() if one is not None])

    def _memory(self, plan: TrialPlan, *, ask: bool) -> Memory:
        """Return the estimate of training's memory by the planner, where it is known or may be asked, else by sizes."""
        priced, step = price(plan, self._setting.rates), self._step(plan, ask=ask)
        if step is None:
            parts = priced.tensor_bytes, priced.library_bytes
        else:
            parts = planned_bytes(plan, step, self._setting.rates)
        return Memory(sum(parts), bytes_errors(plan, *parts, planned=step is not None), priced.least_bytes)

    def _step(self, plan: TrialPlan, *, ask: bool) -> StepBytes | None:
        """Return what the planner says of a plan's steps; None where the rough estimate has to do.

        Of a tail that changes while it trains, the steps are those it starts with; asked only where the rough
        estimate, which is that of its full width, is over the limit.
        """
        limit = self._setting.limits.memory_bytes
        if limit is None or not (plan.traits.changes_shapes or worth_planning(plan)):
            return None
        rough = price(plan, self._setting.rates).peak_bytes
        if rough <= limit if plan.traits.changes_shapes else rough > SURELY_OVER * limit and not plan.shape:
            return None
        form = _form(plan)
        if form not in self._steps and ask:
            try:
                step: StepPlan | None = self._sessions[plan.runtime.backend].plan_step(plan)
            except (TunerError, RuntimeError):  # a lowering may raise anything: the trial will say what
                step = None
            self._steps[form] = None if step is None else StepBytes.of(step)
        return self._steps.get(form)

    def _observed_bytes(self, record: TrialRecord) -> Observation | None:
        """Return what a trial shows of the estimates of memory; None where filling hides it, or it is not known."""
        plan, limit = record.plan, self._setting.limits.memory_bytes
        if plan is None or (plan.traits.changes_shapes and limit is not None):  # it obeys the limit itself
            return None
        memory = self._memory(plan, ask=False)
        if record.state == "killed" and limit is not None and "memory" in record.constraint:
            measured = max(memory.nbytes, limit * math.exp(record.constraint["memory"]))  # it took that much at least
        elif record.state not in SCORED:
            return None
        else:
            measured = record.values["peak_bytes"]
        return None if measured <= memory.least else Observation(memory.errors, math.log(measured / memory.nbytes))

    def _observed_seconds(self, record: TrialRecord) -> Observation | None:
        """Return what a trial shows of the estimates of training's seconds."""
        plan, rates = record.plan, self._setting.rates
        if plan is None or record.state not in SCORED or record.values["train_seconds"] <= 0:
            return None
        epochs = len(record.epochs) or plan.recipe.epochs  # it may have stopped early
        shown = replace(plan, recipe=replace(plan.recipe, epochs=epochs))
        ratio = record.values["train_seconds"] / price(shown, rates).train_seconds
        return Observation(seconds_errors(shown, rates), math.log(ratio))


def bytes_errors(plan: TrialPlan, tensors: int, rest: int, *, planned: bool) -> dict[Hashable, float]:
    """Return what the error of an estimate of memory depends on: of tensors, planned or not, and of all else."""
    kind = (*_kind(plan), planned)
    if plan.traits.changes_shapes:
        return {kind: PART_BYTES}
    whole = max(1, tensors + rest)
    return {
        ("tensors", planned): PART_BYTES * tensors / whole,
        ("rest", planned): PART_BYTES * rest / whole,
        kind: KIND_BYTES,
        ("cut", plan.split): CUT_BYTES,
    }


def seconds_errors(plan: TrialPlan, rates: Rates) -> dict[Hashable, float]:
    """Return what the error of an estimate of seconds depends on."""
    if plan.traits.solves:  # its seconds say nothing of steps
        return {("solved", *_kind(plan)): READY_SECONDS}
    priced = price(plan, rates)
    ready, steps = priced.ready_seconds, priced.steps_seconds
    whole = max(1e-9, priced.train_seconds)
    return {
        "start": PART_SECONDS * priced.start_seconds / whole,
        "ready": READY_SECONDS * ready / whole,
        "steps": PART_SECONDS * steps / whole,
        "samples": PART_SECONDS * (priced.loop_seconds - ready - steps) / whole,
        _kind(plan): KIND_SECONDS,
        ("cut", plan.split): CUT_SECONDS,
    }


def with_memory_limit(plan: TrialPlan, setting: Setting) -> TrialPlan:
    """Return the plan with the study's limit on memory.

    Not with ``--deterministic`` where the tail changes while it trains: what a process takes is no function of a plan.
    """
    limit = setting.limits.memory_bytes
    if limit is None or (plan.traits.changes_shapes and setting.deterministic):
        return plan
    return replace(plan, runtime=replace(plan.runtime, memory_bytes=limit))


def _form(plan: TrialPlan) -> tuple[Any, ...]:
    """Return what the memory of a plan's step depends on, within a study."""
    recipe = plan.recipe
    samples = min(recipe.batch_size, plan.train_samples)
    decays = recipe.weight_decay > 0
    partial = not recipe.freeze_bn and plan.train_samples % samples != 0
    step = (recipe.optimiser, recipe.momentum > 0, decays, recipe.clip > 0, recipe.freeze_bn, partial)
    terms = tuple((term.kind, term.settings, term.teacher) for term in plan.loss)
    return (plan.size, plan.split, samples, recipe.part_size, plan.shape, terms, plan.runtime, *step)


def _kind(plan: TrialPlan) -> tuple[str, bool, tuple[str, ...], bool]:
    """Return what distinguishes plans whose errors are their own: backend, caching, tail edits, the executor."""
    return plan.runtime.backend, plan.cached, tuple(edit.kind for edit in plan.shape), worth_planning(plan)
