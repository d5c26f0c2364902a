"""The loop of a study: ask, compose, predict, run under guard, teach."""

import random
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import Trial as OptunaTrial
from optuna.trial import TrialState as OptunaState

from tuner.backends.base import CHECKPOINT, Trial
from tuner.errors import TunerError
from tuner.plan.trial import TrialPlan
from tuner.planner import cost
from tuner.planner.cost import Estimate
from tuner.plugin.compose import Composed, StrategyError, compose
from tuner.plugin.host import Host
from tuner.plugin.knobs import ValueSource, random_values
from tuner.results.folder import append_record
from tuner.results.pareto import front
from tuner.results.records import SCORED, TrialRecord, binding, eligible
from tuner.search.admission import Admission, Refused
from tuner.search.anchors import anchors
from tuner.search.filling import Filler
from tuner.search.forecast import Forecast, with_memory_limit
from tuner.search.journal import next_trial, optuna_values, seeded
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt, JobLimits
from tuner.search.processes.remote import RemoteSession
from tuner.search.scoring import record_of, unfilled_record
from tuner.search.setting import CLOSING_SECONDS, Setting
from tuner.store.store import Store

REFUSALS_IN_A_ROW = 50
FAILURES_OF_A_PLUGIN = 3
WEIGHTS = "weights.safetensors"


class Study:
    """Runs trials until a limit, the space or the user ends it."""

    def __init__(
        self,
        setting: Setting,
        host: Host,
        journal: optuna.Study,
        records: Sequence[TrialRecord],
        sessions: Mapping[str, RemoteSession],
        store: Store,
        listener: Listener,
        interrupt: Interrupt,
    ) -> None:
        self._setting, self._host, self._journal = setting, host, journal
        self._sessions, self._store, self._listener, self._interrupt = sessions, store, listener, interrupt
        self._strategies = list(setting.strategies)
        self._strikes: dict[str, int] = {}
        self.records = list(records)
        self._seen = {record.plan.key(): record for record in self.records if record.plan and _trained(record)}
        self._filler = Filler(setting, sessions, store, listener)
        self._admission = Admission(setting, host, Forecast(setting, sessions), self._filler)
        self.ended = ""

    def prepare(self) -> None:
        """Put the first plans in the queue and fill the store for all that may follow.

        Raises:
            BudgetError: The limits leave no room for one trial.
        """
        self._tell_unreported()
        self._filler.prepare([*self._enqueue_anchors(), *self._reachable()])

    def run(self) -> None:
        """Run until the end; `ended` then says what ended it."""
        idle = 0
        while not (reason := self._over(idle)):
            self._interrupt.check()
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
        if self._setting.seconds_left <= CLOSING_SECONDS:
            return "the time is up"
        if idle >= REFUSALS_IN_A_ROW:
            return f"{idle} plans in a row were {self._binding(idle)}"
        if not self._strategies:
            return "every strategy was removed from the study after repeated errors"
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

    def _compose(self, source: ValueSource) -> Composed:
        setting = self._setting
        composed = compose(self._strategies, source, setting.model, setting.task, setting.wanted)
        return replace(composed, plan=with_memory_limit(composed.plan, setting))

    def _reachable(self) -> Iterator[TrialPlan]:
        """Yield plans drawn at random: what the study may ask the store for."""
        draw = random_values(random.Random(0))
        for _ in range(128):
            try:
                yield self._compose(draw).plan
            except StrategyError:  # its own trials will say what it raises
                return

    def _enqueue_anchors(self) -> list[TrialPlan]:
        """Put the plans that suit most tasks first, so that a tiny budget already gives a useful front."""
        plans = []
        for composed in anchors(self._setting, self._compose):
            plans.append(composed.plan)
            if not self.records:
                values = {name: composed.values[name] for name, knob in composed.knobs.items() if not knob.fixed}
                self._journal.enqueue_trial(values, skip_if_exists=True)
        return plans

    def _try(self, trial: OptunaTrial) -> TrialRecord:
        """Carry one suggestion through to its record."""
        started = time.monotonic()
        base = TrialRecord(trial=trial.number, state="failed", plan=None)
        try:
            composed = self._compose(optuna_values(trial))
        except TunerError as error:
            return replace(base, reason=str(error))
        except StrategyError as error:
            return self._strike(base, error)
        plan = composed.plan
        base = replace(base, plan=plan, knobs=composed.values)
        seen = self._seen.get(plan.key())
        if seen is not None:
            return replace(seen, trial=trial.number, knobs=composed.values, same_as=seen.trial, spent_seconds=0.0)
        decision = self._admission.admit(plan, self.records)
        base = replace(base, estimate=decision.estimate)
        if isinstance(decision, Refused):
            return replace(base, state="rejected", reason=decision.reason, constraint=dict(decision.constraint))
        self._make_room(plan)
        try:
            self._filler.fill([plan])
        except TunerError as error:
            return unfilled_record(base, error)
        job = Trial(plan, seeded(self._setting.seed, plan.key()), self._store, self._weights(trial.number))
        limits = self._job_limits(decision.estimate)
        result = self._sessions[plan.runtime.backend].try_train(job, limits, self._progress)
        base = replace(base, spent_seconds=time.monotonic() - started)
        return record_of(self._setting, base, result, self._filler.seconds_each(plan))

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

    def _make_room(self, plan: TrialPlan) -> None:
        """Hold the store to what ``--storage`` leaves once the plan's weights are written."""
        left = self._admission.storage_left()
        if left is not None:
            self._store.cap_bytes = max(0, left - cost.weight_bytes(plan))
            self._store.room(0)

    def _strike(self, base: TrialRecord, error: StrategyError) -> TrialRecord:
        """Record a strategy's exception; a strategy that keeps raising is put out of the study."""
        name = error.strategy
        self._strikes[name] = self._strikes.get(name, 0) + 1
        if self._strikes[name] >= FAILURES_OF_A_PLUGIN:
            self._strategies = [strategy for strategy in self._strategies if strategy.name != name]
            self._listener.say(f"{error}; it raised {FAILURES_OF_A_PLUGIN} times and takes no further part")
        trace = "".join(traceback.format_exception(error.__cause__ or error))
        return replace(base, reason=str(error), notes=(trace,), constraint={"failed": 1.0})

    def _keep(self, trial: OptunaTrial, record: TrialRecord) -> None:
        """Write the record first, tell Optuna after: a record on disk is a finished trial."""
        append_record(self._setting.folder, record)
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

    def _tell(self, trial: OptunaTrial, record: TrialRecord) -> None:
        for name, value in record.constraint.items():
            if name not in trial.storage.get_trial(trial._trial_id).constraints:  # noqa: SLF001 - set before a kill
                trial.set_constraint(name, value)
        if record.state in SCORED:
            values = [record.values[objective.name] for objective in self._setting.objectives]
            self._journal.tell(trial, values)
        else:
            self._journal.tell(trial, state=OptunaState.PRUNED)

    def _tell_unreported(self) -> None:
        """Bring Optuna up to the records, which are written first: a kill may have come in between."""
        trials = self._journal.get_trials(deepcopy=False)
        records = {record.trial: record for record in self.records}
        for frozen in trials:
            if frozen.number in records and not frozen.state.is_finished():
                trial = OptunaTrial(self._journal, frozen._trial_id)  # noqa: SLF001 - as in next_trial
                if frozen.state is OptunaState.WAITING:
                    trial.storage.set_trial_state_values(frozen._trial_id, OptunaState.RUNNING)  # noqa: SLF001 - the same
                self._tell(trial, records[frozen.number])
        for record in self.records[len(trials) :]:  # the journal lost more than its last line: the numbers stay
            scored = record.state in SCORED
            values = [record.values[objective.name] for objective in self._setting.objectives] if scored else None
            state = OptunaState.COMPLETE if scored else OptunaState.PRUNED
            self._journal.add_trial(optuna.trial.create_trial(state=state, values=values))

    def _weights(self, number: int) -> Path:
        return self._setting.folder / "trials" / str(number) / WEIGHTS


def _trained(record: TrialRecord) -> bool:
    """Return whether the record is that of a plan's own training: a refusal may end differently another time."""
    return record.same_as is None and record.state != "rejected"
