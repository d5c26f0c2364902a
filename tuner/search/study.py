"""The loop of a study: ask, compose, predict, run under guard, teach."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.trial import Trial as OptunaTrial

from tuner.backends.base import Trial
from tuner.errors import TunerError
from tuner.machine.awake import CLOCK, GAP_SECONDS
from tuner.plan.trial import TrialPlan
from tuner.planner.price import price
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.host import Host
from tuner.plugin.sources import preferred_values
from tuner.results.folder import weights_of
from tuner.results.records.trial import SCORED, TrialRecord, eligible, was_trained
from tuner.results.scores.pareto import least_known
from tuner.search.admission import Admission
from tuner.search.estimate.forecast import Forecast
from tuner.search.estimate.outlook import Outlook
from tuner.search.fill.filling import Filler
from tuner.search.finals import Finals
from tuner.search.folds import train
from tuner.search.listener import CROSS_VALIDATING, PROMOTING, TRYING, Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.remote import RemoteSession
from tuner.search.propose.anchors import anchors, earlier, reachable
from tuner.search.propose.candidates import Candidates
from tuner.search.propose.checkpoints import Checkpoints
from tuner.search.propose.priors import prior_plans
from tuner.search.propose.structures import Structures
from tuner.search.rungs import FINAL, Ladder, Promotion, at_rung, lowest_rung, prepare_slice
from tuner.search.scoring import Baselines, record_of, refuse_full_disk, uncomposed_record, unfilled_record
from tuner.search.setting import Setting
from tuner.search.stopping import Improvement, reason_to_end
from tuner.search.trials.journal import PROMOTED, RUNG, optuna_values, origin_of, place_of
from tuner.search.trials.queue import Queue
from tuner.search.trials.strikes import Composer, Strikes
from tuner.store.store import Store
from tuner.units import format_seconds

#: Filling the first slice may take this share of the time; else it is a smaller one.
SLICE_SHARE = 0.15
#: A run is over where it may gain less than so much of one validation sample.
SHOWN = 0.25
DONE = "nothing is left to gain that the validation samples could show (--keep-going uses the rest of the time)"


class Study:
    """Runs trials until a limit, the space or the user ends it."""

    def __init__(
        self,
        setting: Setting,
        host: Host,
        queue: Queue,
        sessions: Mapping[str, RemoteSession],
        store: Store,
        untouched: Callable[[float, int], Mapping[str, float]],
        listener: Listener,
        interrupt: Interrupt,
        compare: Callable[[float, int], None] = lambda _share, _folds: None,
    ) -> None:
        self._setting, self._host, self._queue = setting, host, queue
        self._sessions, self._store, self._listener, self._interrupt = sessions, store, listener, interrupt
        self._strikes = Strikes(self._strategy_left)
        self.records = list(queue.records)
        self._seen = {record.plan.key(): record for record in self.records if record.plan and was_trained(record)}
        self._filler = Filler(setting, sessions, store, listener)
        self._admission = Admission(setting, host, Forecast(setting, sessions), self._filler, self._strikes.barred)
        self._compose = Composer(setting, host, self._strikes, self._admission.avoidable)
        self._given = Baselines(untouched, compare, setting, listener)
        self._improvement = Improvement(listener, setting)
        self._reachable: list[TrialPlan] = []
        self._structures = Structures(setting, self._compose, self._seconds_on, self._least_known)
        self._candidates = Candidates(queue, setting, self._compose, self._structures)
        self._outlook, self._checkpoints = Outlook(setting), Checkpoints(self._weights)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._where, self.ended, self._asleep = "", "", CLOCK.asleep
        self._composed: dict[int, Composed] = {}
        self._ladder = Ladder(setting, self._seconds_at)
        self._finals = Finals(setting, self._seconds_at, self._least_known)

    def prepare(self) -> None:
        """Put the first plans in the queue and fill the store for all that may follow, as far as the limits allow."""
        if self.records:
            self._ladder.floor = self._given.floor(self.records[-1].rung)
        self._queue.catch_up(self._ladder.floor)
        first = self._enqueue_first()
        is_begun = self._queue.lowest is not None or not first
        lowest = self._queue.lowest or 0 if is_begun else lowest_rung(first, self._setting)
        if first and self._candidates.weighs:
            self._structures.begin(self._anchors)
            first += [composed.plan for composed in self._structures.anchors]
        if self._setting.same_task and first:  # its features are most likely stored
            self._filler.prepare(first[:1], SLICE_SHARE * self._setting.seconds_left)
        self._reachable = list(reachable(self._compose))
        plans, within = [*first, *self._reachable], SLICE_SHARE * self._setting.seconds_left
        self._ladder.lowest = self._queue.lowest = prepare_slice(self._filler, plans, lowest, within)
        self._ladder.climb(self.records)
        for record in self.records:
            self._checkpoints.ended(record)
        for record in filter(self._checkpoints.has_siblings, self.records[-1:]):  # a kill may have come first
            self._candidates.enqueue_siblings(self._full(record), record.rung)

    def run(self) -> None:
        """Run until the end; `ended` then says what ended it."""
        idle = 0
        while not (reason := self._reason_to_end(idle)):
            self._interrupt.check()
            self._listener.phase(TRYING)
            self._hear()
            if (trial := self._next()) is None or (record := self._try(trial)) is None:
                continue
            self._keep(trial, record)
            idle = 0 if record.state in SCORED and record.same_as is None else idle + 1
            self._ladder.leave(self.records, self._fill_seconds)
            if not idle and record.rung <= self._ladder.lowest:
                self._given.compare(record.rung)
        self.ended = reason

    def _reason_to_end(self, idle: int) -> str:
        if (slept := CLOCK.asleep - self._asleep) > GAP_SECONDS:
            self._listener.say(f"asleep for {format_seconds(slept)}, which does not count as time of the run")
            self._asleep += slept
        if self._strikes.barred >= {strategy.name for strategy in self._setting.strategies}:
            return "every strategy was removed from the study after repeated errors"
        reason = reason_to_end(self._setting, self._queue, self.records, idle, self._improvement.flat_seconds)
        return reason or (DONE if self._is_done() and self._final() is None else "")

    def _final(self) -> Promotion | None:
        """Return the plan to cross-validate now; None before the ladder of structures is climbed."""
        left = self._setting.trying_seconds
        if self._ladder.lowest or not self._candidates.weighs or self._structures.next(self.records, 0, left):
            return None
        return self._finals.next([one for one in self.records if self._repeatable(one)], left, self._is_done)

    def _is_done(self) -> bool:
        """Return whether what the rest of the time may bring is too little for the validation samples to show."""
        limits = self._setting.limits
        if limits.keep_going or limits.trials is not None or self._ladder.lowest or not self._candidates.weighs:
            return False
        if self._queue.has_waiting() or self._hope() >= self._shown:
            return False
        known = [(one.get("local_accuracy", 0.0), one.get("global_accuracy", 1.0)) for one in self._front_scores()]
        is_flat = self._candidates.gain_within(self._setting.trying_seconds) < self._shown
        return bool(known) and ((1.0, 1.0) in known or is_flat)

    def _front_scores(self) -> list[Mapping[str, float]]:
        members = set(self.front())
        return [self._setting.weighed(record.values) for record in self.records if record.trial in members]

    @property
    def _shown(self) -> float:
        """What the validation samples can just show: what a share of one of them adds to the area under the front."""
        most = max((one.get("global_accuracy", 1.0) for one in self._front_scores()), default=1.0)
        task, folded = self._setting.task, self._rung == FINAL
        return most * SHOWN / max(1, task.local_val + task.local_train * folded)

    def _hope(self) -> float:
        """Return by how much the area under the front may grow at best, on the rung that plans are tried on."""
        return self._structures.hope(self.records, self._rung, self._setting.trying_seconds, self._admits)

    @property
    def _rung(self) -> int:
        """The rung that plans are tried on: the final one where there is time to go on there."""
        return FINAL if self._finals.go_on(self.records) else self._ladder.lowest

    def front(self) -> list[int]:
        """Return the numbers of the trials on the Pareto front, and of the one that would be picked."""
        return self._finals.front(self.records, self._given)

    @property
    def filled_samples(self) -> int:
        """Samples that went through the prefix in this study's own filling passes."""
        return self._filler.samples

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by what they were spent on."""
        return {"features": self._filler.seconds, "baselines": self._given.seconds, **self._seconds}

    def storage_bytes(self) -> int:
        """Return the bytes of the store."""
        return self._store.nbytes

    @property
    def _climbs(self) -> bool:
        """Whether the study decides after each trial which anchor is next; workers that share one take all in order."""
        return self._candidates.weighs and not self._queue.is_shared

    def _enqueue_first(self) -> list[TrialPlan]:
        """Put the plans that suit most tasks first, so that a tiny budget already gives a useful front."""
        known = list(earlier(self._setting, self._compose))
        self._anchors = list(anchors(self._setting, self._compose, climbs=self._climbs))
        first = [*known, *self._anchors]
        if self._queue.is_new:
            own = [(one, dict[str, int]()) for one in (known if self._climbs else first)]
            top = [(one, {RUNG: 0}) for one in known[: self._setting.same_task]]  # it is known to suit the task
            prior = prior_plans(self._setting, self._compose, self._admission, self._listener)
            seen = set[str]()
            for composed, place in [*top, *prior, *own[len(top) :]]:
                if composed.plan.key() not in seen:
                    self._queue.enqueue(composed, place)
                seen.add(composed.plan.key())
            self._queue.begin()
        return [composed.plan for composed in first]

    def _hear(self) -> None:
        """Take over what other workers of the study have finished."""
        news, self.records = self._queue.news(), self._queue.known(self.records)
        for record in news:
            self._note(record)
            self._listener.trial(record)

    def _next(self) -> OptunaTrial | None:
        """Return the trial to run next: begun or queued, promoted, or suggested; None where another worker has it."""
        if self._queue.is_begun():
            return None
        self._ladder.climb(self.records)
        self._ladder.leave(self.records, self._fill_seconds)
        if (trial := self._queue.waiting(self._ladder.lowest)) is not None:
            return trial

        def is_taken(record: TrialRecord, rung: int) -> bool:
            return self._queue.is_taken(self._at(record, rung))

        ready = self._structures.promotable(self.records, self._ladder.lowest, self._setting.trying_seconds)
        if promotion := self._ladder.next([one for one in ready if self._repeatable(one)], is_taken) or self._final():
            composed = self._full(promotion.record)
            return self._queue.claim(composed, at_rung(composed.plan, promotion.rung), place_of(*promotion))
        chosen = self._choose(rung := self._rung)
        plan = None if chosen is None else at_rung(chosen.plan, rung)
        tried = self._seen.get(at_rung(chosen.plan, 0).key()) if chosen is not None and rung == FINAL else None
        return self._queue.claim(chosen, plan, {RUNG: rung} if tried is None else place_of(tried, FINAL))

    def _choose(self, rung: int) -> Composed | None:
        """Return the plan to try next on a rung; None where Optuna is to be asked."""
        if not self._candidates.weighs:
            return self._vary(rung)
        left = self._setting.trying_seconds - self._finals.reserve(self.records, self._setting.trying_seconds)
        next_, longer = self._structures.choose(self.records, rung, left, self._admits, shown := self._shown)
        chosen = next_ or self._vary(rung)
        is_flat = self._candidates.gain_within(left) < shown
        return longer if longer is not None and next_ is None and is_flat else chosen

    def _vary(self, rung: int) -> Composed | None:
        """Return the plan that is expected to bring most, of suggestions and variations of good ones."""
        return self._candidates.best(lambda one: self._seconds_on(one, rung), self._admits, self.records, rung)

    def _admits(self, composed: Composed) -> bool:
        """Return whether a plan is within the limits on the rung that plans are tried on."""
        plan = at_rung(composed.plan, self._rung)
        return self._admission.admit(plan, self.records, composed.plan, self._checkpoints.due(plan)).admits

    def _seconds_on(self, composed: Composed, rung: int) -> float:
        """Return what it takes to try a plan on a rung now; infinity where it was tried there."""
        plan = at_rung(composed.plan, rung)
        tried = plan.key() in self._seen or self._queue.is_taken(plan)
        return math.inf if tried else self._admission.seconds(self._checkpoints.due(plan) or plan, self.records)

    def _seconds_at(self, record: TrialRecord, rung: int) -> float:
        """Return what it takes to try a trial's plan on a rung."""
        plan = self._at(record, rung)
        return self._admission.seconds(self._due(plan, rung, record.config) or plan, self.records)

    def _due(self, plan: TrialPlan, rung: int, config: int) -> TrialPlan | None:
        """Return what is still to be trained of a plan a part of which has left a checkpoint; None for all of it."""
        if rung == FINAL:
            return self._checkpoints.due_folds(self.records, plan, config)
        return self._checkpoints.due(plan)

    def _least_known(self, rung: int) -> float:
        """Return the global accuracy that the pick asks for on a rung."""
        return least_known(self._given.on(rung), self._setting.limits.forgetting)

    def _fill_seconds(self, rung: int) -> float:
        """Return what it takes to fill what the first plans need on a rung."""
        plans = [at_rung(one.plan, rung) for one in self._structures.anchors]
        rates, pace = self._setting.rates, self._filler.pace
        return pace * max((self._filler.missing(one) * price(one, rates).fill_seconds for one in plans), default=0.0)

    def _full(self, record: TrialRecord) -> Composed:
        """Return the plan of a trial as it is on the top rung."""
        if record.config not in self._composed:
            self._composed[record.config] = self._compose(preferred_values(record.knobs))
        return self._composed[record.config]

    def _at(self, record: TrialRecord, rung: int) -> TrialPlan:
        """Return the plan of a trial as it is on a rung."""
        return at_rung(self._full(record).plan, rung)

    def _repeatable(self, record: TrialRecord) -> bool:
        """Return whether a trial's values still give its plan: a strategy that takes no further part changes it."""
        return not self._strikes.barred or record.plan == self._at(record, record.rung)

    def _try(self, trial: OptunaTrial) -> TrialRecord | None:
        """Carry one suggestion through to its record; None where another worker trains its plan."""
        setting, origin = self._setting, {"trial": trial.number, **origin_of(trial)}
        started, rung, promoted = CLOCK.now(), origin[RUNG], origin[PROMOTED]
        base = TrialRecord(state="failed", plan=None, kind=setting.kind, started=time.time(), **origin)
        try:
            composed = self._compose(optuna_values(trial))
        except (TunerError, StrategyError) as error:
            if isinstance(error, StrategyError):
                refuse_full_disk(self._setting)
                self._strikes.count_error(error, tried=True)
            return uncomposed_record(base, error)
        plan = at_rung(composed.plan, rung)
        base = replace(base, plan=plan, knobs=composed.values, strategies=composed.changed, notes=composed.notes)
        if (seen := self._seen.get(plan.key())) is not None:
            again = replace(seen, kind=setting.kind, knobs=composed.values, started=base.started, **origin)
            return replace(again, same_as=seen.trial, spent_seconds=0.0)
        if not self._queue.hold(trial, plan):
            return None
        due = self._due(plan, rung, base.config)
        decision = self._admission.admit(plan, self.records, composed.plan, due)
        base = replace(base, estimate=(expected := decision.expected).estimate, uncalibrated=expected.plain)
        if not decision.admits:
            return replace(base, state="rejected", reason=decision.reason, constraint=dict(decision.constraint))
        self._admission.make_room(plan, self._store)
        try:
            self._filler.fill_with(plan, self._next_up(plan, rung))
        except TunerError as error:
            return unfilled_record(base, error)
        self._where = f" on rung {rung}" if rung > 0 else ""
        self._ladder.floor, given, training = self._given.floor(rung), self._given.on(rung), CLOCK.now()
        self._listener.phase(CROSS_VALIDATING if rung == FINAL else TRYING if promoted is None else PROMOTING)
        self._outlook.begin(plan, expected.estimate, rung, self.records)
        session, names = self._sessions[plan.runtime.backend], setting.objective_names
        whole = self._checkpoints.whole(self.records, promoted) if rung == FINAL else None
        earlier = whole or self._checkpoints.earlier(plan)
        keeps = self._checkpoints.has_room(plan, self._admission.storage_left())
        job = Trial(plan, 0, self._store, self._weights(trial.number), objectives=names, earlier=earlier, keeps=keeps)
        slower = expected.estimate.train_seconds / max(1e-9, expected.plain.train_seconds)
        result = train(setting, session, job, self._progress, slower)
        self._seconds[f"rung {rung}"] += CLOCK.now() - training
        if result.failure is not None:
            self._strikes.count_fault(result.failure.edit, result.failure.text, composed)
        base = replace(base, spent_seconds=CLOCK.now() - started)
        return self._outlook.explained(record_of(setting, base, result, self._filler.seconds_each(plan), given))

    def _next_up(self, plan: TrialPlan, rung: int) -> Iterator[TrialPlan]:
        """Yield plans that may be tried on a rung next to a plan: those of the rungs below, and others in between.

        The prefix passes their cuts on its way: to store them too takes little, to come back for them takes a pass.
        """
        below = range(rung + 1, self._ladder.lowest + 1)
        tried = [self._full(record).plan for one in below for record in self._ladder.ranked(self.records, one)]
        tried += [composed.plan for composed in self._structures.anchors]
        first, *_, last = sorted([plan.split, plan.split, *(one.split for one in tried)])
        between = (one for one in self._reachable if first <= one.split <= last)
        yield from (at_rung(one, rung) for one in (*tried, *between))

    def _progress(self, progress: Mapping[str, Any]) -> bool:
        """Pass progress on; return whether the trial is to stop."""
        if "warning" in progress:
            self._listener.say(f"warning: {progress['warning']}")
        elif "step" in progress:
            where = f"training{self._where}{progress.get('where', '')}"
            self._listener.step(where, progress["step"], progress["steps"])
        return "loss" in progress and self._outlook.hopeless(progress["loss"], progress.get("seconds", 0.0))

    def _strategy_left(self, line: str) -> None:
        """Say it; plans that were composed with the strategy are composed anew."""
        self._composed.clear()
        self._listener.say(line)

    def _keep(self, trial: OptunaTrial, record: TrialRecord) -> None:
        """Keep a trial's record, and what the search learns from it."""
        self._checkpoints.ended(record)
        if not self._queue.finish(trial, record, self._ladder.floor):
            self._weights(record.trial).unlink(missing_ok=True)
            return
        self._note(record)
        if self._checkpoints.has_siblings(record):
            self._candidates.enqueue_siblings(self._full(record), record.rung)
        finals = [one.trial for one in self.records if one.rung == FINAL and eligible(one)]
        members = [*self.front(), *(finals if len(finals) == 1 else ())]  # one alone is on the front with the next one
        for other in self._queue.unwanted(self.records, members):
            self._weights(other).unlink(missing_ok=True)
        self._checkpoints.prune(self.records, members)
        self._finals.keep_for_refit(self.records, self._given, self._checkpoints)
        self._host.trial_done(str(self._setting.folder), record)
        self._listener.trial(record)

    def _note(self, record: TrialRecord) -> None:
        self.records.append(record)
        if record.plan is not None and was_trained(record):
            self._seen[record.plan.key()] = record
        self._improvement.note(self.records, self._hope() if self._climbs else None)

    def _weights(self, number: int) -> Path:
        return weights_of(self._setting.folder, number)
