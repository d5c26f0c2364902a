"""The trials of a study that several workers share: who tries what, so that no plan is trained twice at a time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.errors import RunError
from tuner.files import write_private
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed
from tuner.results.folder import TRIALS, append_record, weights_of
from tuner.results.kinds import Kind
from tuner.results.records.trial import TrialRecord
from tuner.search.setting import Setting
from tuner.search.trials.journal import CONSTRAINT, record_constraints, values_of
from tuner.search.trials.queue import Queue
from tuner.search.trials.samplers import sampler_of
from tuner.search.trials.seeds import seeded
from tuner_fleet.artifacts.weights import SharedWeights
from tuner_fleet.storage.trials import Trials
from tuner_fleet.study.claims import (
    ENDED,
    PAUSE,
    TAKEN,
    begun_by,
    has_another,
    is_beyond,
    is_in,
    is_ours,
    is_void,
    key_of,
    next_waiting,
    offered,
    queued,
    ranges_of,
)
from tuner_fleet.study.content import (
    ARTIFACT,
    FIRST,
    GIVEN_UP,
    HELD,
    KEY,
    KIND,
    LEFT,
    RECORD,
    WORKER,
    as_line,
    is_of_its_worker,
    record_in,
    weights_in,
)
from tuner_fleet.study.heard import Heard
from tuner_fleet.study.heartbeat import Heartbeat, put_back, retire

LOST = "trial {} was given to another worker meanwhile: it does not count"
DIED = "warning: trial {} is not tried again, as {} workers have died while they tried its plan"


@dataclass(frozen=True, slots=True)
class Place:
    """Who works on a shared study, and where.

    Attributes:
        worker: The worker's name.
        kinds: Kinds of devices, by name, this one's among them.
        rest: Sleeps so many seconds, where there is nothing to do; raises where the user or the clock ends the run.
        say: Receives messages for the user.
        weights: Where weights of the front are put for others; None where each worker keeps its own.
    """

    worker: str
    kinds: dict[str, Kind]
    rest: Callable[[float], None]
    say: Callable[[str], object]
    weights: SharedWeights | None = None


class SharedQueue(Queue):
    """The trials of a shared study as one worker sees them.

    A trial is claimed by making it, with its values and what it trains: Optuna's storages number trials one after the
    other, and the lowest number that trains a plan has it. Whoever made a higher one gives it up. There is no other
    lock, and nobody who decides: a promotion goes to whoever makes its trial first.

    Args:
        trials: The study's.
        setting: This worker's.
        place: Who this worker is.
        heartbeat: Marks its trials.

    Attributes:
        heard: The trials that this worker knows to have ended.
    """

    def __init__(self, trials: Trials, setting: Setting, place: Place, heartbeat: Heartbeat) -> None:
        super().__init__(trials.study, setting, ())
        self.seed = seeded(setting.seed, place.worker)
        self._trials, self._place, self._heartbeat = trials, place, heartbeat
        self._template = TrialPlan(model=setting.model, task=setting.task)
        self.heard = Heard(setting, place.kinds)
        self._listed, self._mine = list[FrozenTrial](), dict[int, FrozenTrial]()
        for trial in trials.all(TrialState.RUNNING):
            if trial.user_attrs.get(WORKER) == place.worker:  # this one left it in an earlier session
                retire(trials, trial.number)
        self.records = self._look()
        self._told = self.heard.paced()
        lines = (as_line(record) for _, record in sorted(self.heard.records.items()))
        write_private(setting.folder / TRIALS, "".join(lines))
        if place.weights is not None:
            own = (trial for trial in self._listed if trial.user_attrs.get(WORKER) == place.worker)
            names = {trial.number: name for trial in own if (name := weights_in(trial)) is not None}
            place.weights.adopt(names, setting.folder, self.heard.fronts)

    def catch_up(self, floor: float) -> None:
        """Do nothing: the database is what counts, and this worker's folder was brought up to it."""

    def news(self) -> Sequence[TrialRecord]:
        """Return the trials that other workers have finished since the last call, with costs as on this device."""
        before = set(self.heard.records)
        seen = self._look()
        for number in sorted(self.heard.records.keys() - before):
            append_record(self._setting.folder, self.heard.records[number])
        return seen

    def done(self, _records: Sequence[TrialRecord]) -> int:
        """Return how many trials count, on whatever kind of device: this one need not have heard of all."""
        return super().done(list(self.heard.records.values()))

    def known(self, records: list[TrialRecord]) -> list[TrialRecord]:
        """Return records that were heard before, with costs as they are expected on this device by now."""
        before, self._told = self._told, self.heard.paced()
        raw = (self.heard.records[record.trial] for record in records)
        return records if before is self._told else self.heard.here(raw)

    @property
    def is_shared(self) -> bool:
        """Whether other processes take trials from it too."""
        return True

    @property
    def is_new(self) -> bool:
        """Whether this worker is to put the first plans in the queue: it made the study, or who did has left."""
        return self.study.user_attrs.get(FIRST) in {self._place.worker, LEFT}

    def begin(self) -> None:
        """Note that the first plans are in the queue."""
        self.study.set_user_attr(FIRST, None)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds of devices that are known by now."""
        return self.heard.kinds

    @property
    def begun(self) -> int:
        """Return how many trials there were at the last look."""
        return len(self._listed)

    def is_taken(self, plan: TrialPlan) -> bool:
        """Return whether another worker is trying a plan now, or it waits to be tried again."""
        return is_in(self._listed, TAKEN, key_of(plan))

    def learnable(self, rung: int, records: Sequence[TrialRecord]) -> list[FrozenTrial]:
        """Return the trials that a sampler may learn from, with costs as on this device.

        What a device of another kind refused is left out: it is no limit of this one's.
        """
        by_number, found = {record.trial: record for record in records}, list[FrozenTrial]()
        for trial in self._listed:
            record = by_number.get(trial.number)
            if trial.state not in ENDED or record is None:
                continue
            if trial.state is TrialState.COMPLETE and record.rung == rung:
                found.append(self.heard.translated(trial, record))
            elif trial.state is TrialState.PRUNED:
                found.append(trial)
        return found

    def enqueue(self, composed: Composed, place: Mapping[str, Any]) -> None:
        """Put one of the first plans in the queue."""
        self.study.add_trial(queued(composed.searched, ranges_of(composed), dict(place)))

    def waiting(self, lowest: int) -> Trial | None:
        """Return the next trial in the queue that is for this worker and its kind of device."""
        while (trial := next_waiting(self._listed, {self._setting.kind, self._place.worker})) is not None:
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                if is_void(trial, self._listed):
                    self._trials.set_state(trial.number, TrialState.FAIL)
                elif self._trials.set_state(trial.number, TrialState.RUNNING):
                    return self._begun(trial, lowest)
            self._refresh()  # another worker was quicker, and may have the plan of the next one too
        return None

    def is_begun(self) -> bool:
        """Return whether all trials that were asked for are begun; then wait a moment: a worker may die of its own."""
        most = self._setting.limits.trials
        running = sum(trial.state is TrialState.RUNNING for trial in self._listed)
        if most is None or self.done(()) + running < most:
            return False
        self._place.rest(PAUSE)
        return True

    def claim(self, composed: Composed | None, plan: TrialPlan | None, place: Mapping[str, Any]) -> Trial | None:
        """Begin a trial; None where another worker has its plan."""
        if plan is not None and self.is_taken(plan):
            self._place.rest(PAUSE)
            return None
        attributes = {**place, WORKER: self._place.worker, KIND: self._setting.kind}
        ranges = dict[str, BaseDistribution]()
        if composed is not None and plan is not None:
            attributes |= {KEY: key_of(plan), HELD: True}
            ranges = ranges_of(composed)
        values = {} if composed is None else composed.searched
        made = create_trial(state=TrialState.RUNNING, params=values, distributions=ranges, user_attrs=attributes)
        made.datetime_start = datetime.now()  # noqa: DTZ005 - as Optuna's own
        number = self._trials.make(made)
        self._heartbeat.mark(number)
        self._refresh()
        mine, most, heard = self._listed[number], self._setting.limits.trials, self.heard.numbers
        if has_another(mine, self._listed, heard) or is_beyond(mine, self._listed, heard, most, self.done(())):
            self._heartbeat.mark(None)
            self._trials.set_state(number, TrialState.FAIL)
            return None
        return self._trial(number)

    def hold(self, trial: Trial, plan: TrialPlan) -> bool:
        """Note what a trial trains; False where another worker trains it: then it is tried when that has ended.

        What was made with its plan was compared with the others then: `claim`. What a trial of the queue trains is
        known to nobody before it is composed.
        """
        key, number = key_of(plan), trial.number
        if number not in self._mine and trial.user_attrs.get(KEY) == key:
            return True
        try:
            self._trials.set_attribute(number, KEY, key)
            if is_ours(number, key, self._refresh, self.heard.numbers, self._place.rest):
                self._trials.set_attribute(number, HELD, value=True)
                return True
        except optuna.exceptions.UpdateFinishedTrialError:
            self._heartbeat.mark(None)
            self._place.say(LOST.format(number))
            return False
        self._heartbeat.mark(None)  # before another worker begins it, whose death would go unnoticed
        put_back(self._trials, number)
        return False

    def finish(self, trial: Trial, record: TrialRecord, floor: float) -> bool:
        """Report a trial to the study, and keep it here then; False where it was given to another worker meanwhile."""
        constraints = {CONSTRAINT + name: value for name, value in record_constraints(record, floor).items()}
        values = values_of(record, self._setting.objectives)
        file, weights = weights_of(self._setting.folder, record.trial), self._place.weights
        if weights is not None:  # devices of other kinds may have joined that have finished nothing yet
            self.heard.learn_kinds(self.study.user_attrs)
        is_shared = weights is not None and file.is_file() and self.heard.is_on_front(record)
        name = str(uuid4()) if is_shared else None  # None too: what is tried again may have the name it had
        self._heartbeat.mark(None)
        try:
            self._trials.end(trial.number, values, {RECORD: record.to_dict(), ARTIFACT: name}, constraints)
        except optuna.exceptions.UpdateFinishedTrialError:
            kept = self._trials.get(trial.number)
            if kept.state not in ENDED or kept.user_attrs.get(WORKER) != self._place.worker:
                self._place.say(LOST.format(record.trial))
                return False
        if record.state == "rejected" and trial.number in self._mine:
            refuses = self._place.worker if is_of_its_worker(record) else self._setting.kind
            self.study.add_trial(offered(self._mine[trial.number], refuses))  # others may have room for it
        append_record(self._setting.folder, record)
        self.heard.add(record)
        if weights is not None:
            weights.send(record.trial, file, name)
        return True

    def unwanted(self, records: Sequence[TrialRecord], front_here: Collection[int]) -> set[int]:
        """Return the trials that are on no kind's front."""
        unwanted = {record.trial for record in records} - set(front_here) - self.heard.fronts
        if self._place.weights is not None:
            self._place.weights.drop(unwanted)
        return unwanted

    def _look(self) -> list[TrialRecord]:
        """Return what was finished since the last look, by anybody, as it is on this device."""
        self._refresh()
        found, heard = list[TrialRecord](), self.heard
        for trial in self._listed:
            if trial.number in heard.numbers or not trial.state.is_finished():
                continue
            heard.numbers.add(trial.number)
            if trial.state is TrialState.FAIL and GIVEN_UP in trial.user_attrs:
                self._place.say(DIED.format(trial.number, trial.user_attrs[GIVEN_UP]))
            try:
                record = record_in(trial, self._template, self._setting.objectives)
            except RunError as error:
                self._place.say(f"warning: {error}: it is left out")
                continue
            if record is None:
                continue
            heard.add(record)
            if record.kind not in heard.kinds:
                heard.learn_kinds(self.study.user_attrs)
            if trial.user_attrs.get(WORKER) != self._place.worker and is_of_its_worker(record):
                continue
            found.append(record)
        return heard.here(found)

    def _refresh(self) -> list[FrozenTrial]:
        self._listed = self._trials.all()
        return self._listed

    def _begun(self, trial: FrozenTrial, lowest: int) -> Trial:
        """Take a trial over that waited."""
        self._heartbeat.mark(trial.number)
        for name, value in begun_by(self._place.worker, self._setting.kind, trial, lowest).items():
            self._trials.set_attribute(trial.number, name, value)
        self._mine[trial.number] = trial
        return self._trial(trial.number)

    def _trial(self, number: int) -> Trial:
        self.study.sampler = sampler_of(self._setting.sampler, seeded(self.seed, number))
        return self._trials.take_up(number)
