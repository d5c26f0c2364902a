"""The trials of a study that several workers share: who tries what, so that no plan is trained twice at a time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.errors import RunError
from tuner.files import write_private
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed
from tuner.results.folder import TRIALS, append_record
from tuner.results.kinds import Kind
from tuner.results.records.trial import TrialRecord
from tuner.search.setting import Setting
from tuner.search.trials.journal import CONSTRAINT, record_constraints, sampler_of, values_of
from tuner.search.trials.queue import Queue
from tuner.search.trials.seeds import seeded
from tuner_fleet.artifacts.weights import SharedWeights, file_of, new_name
from tuner_fleet.storage.finish import Ending, SharedStorage
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
        study: Optuna's.
        setting: This worker's.
        place: Who this worker is.
        heartbeat: Marks its trials.
    """

    def __init__(self, study: optuna.Study, setting: Setting, place: Place, heartbeat: Heartbeat) -> None:
        super().__init__(study, setting, ())
        self.seed = seeded(setting.seed, place.worker)
        self._place, self._heartbeat = place, heartbeat
        self._template = TrialPlan(model=setting.model, task=setting.task)
        self._heard = Heard(setting, place.kinds)
        self._trials, self._mine = list[FrozenTrial](), dict[int, FrozenTrial]()
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.user_attrs.get(WORKER) == place.worker:  # this one left it in an earlier session
                retire(study, trial)
        self.records = self._look()
        self._told = self._heard.paced()
        lines = (as_line(record) for _, record in sorted(self._heard.records.items()))
        write_private(setting.folder / TRIALS, "".join(lines))
        if place.weights is not None:
            place.weights.adopt(self._trials, place.worker, setting.folder, self._heard.fronts)

    def catch_up(self, floor: float) -> None:
        """Do nothing: the database is what counts, and this worker's folder was brought up to it."""

    def news(self) -> Sequence[TrialRecord]:
        """Return the trials that other workers have finished since the last call, with costs as on this device."""
        before = set(self._heard.records)
        seen = self._look()
        for number in sorted(self._heard.records.keys() - before):
            append_record(self._setting.folder, self._heard.records[number])
        return seen

    def done(self, _records: Sequence[TrialRecord]) -> int:
        """Return how many trials count, on whatever kind of device: this one need not have heard of all."""
        return super().done(list(self._heard.records.values()))

    def known(self, records: list[TrialRecord]) -> list[TrialRecord]:
        """Return records that were heard before, with costs as they are expected on this device by now."""
        before, self._told = self._told, self._heard.paced()
        raw = (self._heard.records[record.trial] for record in records)
        return records if before is self._told else self._heard.here(raw)

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
        return self._heard.kinds

    @property
    def begun(self) -> int:
        """Return how many trials there were at the last look."""
        return len(self._trials)

    def is_taken(self, plan: TrialPlan) -> bool:
        """Return whether another worker is trying a plan now, or it waits to be tried again."""
        return is_in(self._trials, TAKEN, key_of(plan))

    def learnable(self, rung: int, records: Sequence[TrialRecord]) -> list[FrozenTrial]:
        """Return the trials that a sampler may learn from, with costs as on this device.

        What a device of another kind refused is left out: it is no limit of this one's.
        """
        by_number, found = {record.trial: record for record in records}, list[FrozenTrial]()
        for trial in self._trials:
            record = by_number.get(trial.number)
            if trial.state not in ENDED or record is None:
                continue
            if trial.state is TrialState.COMPLETE and record.rung == rung:
                found.append(self._heard.translated(trial, record))
            elif trial.state is TrialState.PRUNED:
                found.append(trial)
        return found

    def enqueue(self, composed: Composed, place: Mapping[str, Any]) -> None:
        """Put one of the first plans in the queue."""
        self.study.add_trial(queued(composed.searched, ranges_of(composed), dict(place)))

    def waiting(self, lowest: int) -> Trial | None:
        """Return the next trial in the queue that is for this worker and its kind of device."""
        storage = self.study._storage  # noqa: SLF001 - a study has no public way to it
        while (trial := next_waiting(self._trials, {self._setting.kind, self._place.worker})) is not None:
            identity = trial._trial_id  # noqa: SLF001 - Optuna's storages know a trial by nothing else
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                if is_void(trial, self._trials):
                    storage.set_trial_state_values(identity, TrialState.FAIL)
                elif storage.set_trial_state_values(identity, TrialState.RUNNING):
                    return self._begun(trial, lowest)
            self._refresh()  # another worker was quicker, and may have the plan of the next one too
        return None

    def is_begun(self) -> bool:
        """Return whether all trials that were asked for are begun; then wait a moment: a worker may die of its own."""
        most = self._setting.limits.trials
        running = sum(trial.state is TrialState.RUNNING for trial in self._trials)
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
        if composed is None or plan is None:
            made = create_trial(state=TrialState.RUNNING, user_attrs=attributes)
        else:
            attributes |= {KEY: key_of(plan), HELD: True}
            made = create_trial(
                state=TrialState.RUNNING,
                params=composed.searched,
                distributions=ranges_of(composed),
                user_attrs=attributes,
            )
        made.datetime_start = datetime.now()  # noqa: DTZ005 - as Optuna's own
        storage = self.study._storage  # noqa: SLF001 - as above
        identity = storage.create_new_trial(self.study._study_id, made)  # noqa: SLF001 - as above
        self._heartbeat.mark(identity)
        self._refresh()
        mine = self._trial_of(identity)
        most, heard = self._setting.limits.trials, self._heard.numbers
        if has_another(mine, self._trials, heard) or is_beyond(mine, self._trials, heard, most, self.done(())):
            self._heartbeat.mark(None)
            storage.set_trial_state_values(identity, TrialState.FAIL)
            return None
        return self._trial(mine)

    def hold(self, trial: Trial, plan: TrialPlan) -> bool:
        """Note what a trial trains; False where another worker trains it: then it is tried when that has ended.

        What was made with its plan was compared with the others then: `claim`. What a trial of the queue trains is
        known to nobody before it is composed.
        """
        key, identity = key_of(plan), trial._trial_id  # noqa: SLF001 - as above
        if trial.number not in self._mine and trial.user_attrs.get(KEY) == key:
            return True
        storage = self.study._storage  # noqa: SLF001 - as above
        try:
            storage.set_trial_user_attr(identity, KEY, key)
            if is_ours(identity, key, self._looked, self._heard.numbers, self._place.rest):
                storage.set_trial_user_attr(identity, HELD, value=True)
                return True
        except optuna.exceptions.UpdateFinishedTrialError:
            self._heartbeat.mark(None)
            self._place.say(LOST.format(trial.number))
            return False
        self._heartbeat.mark(None)  # before another worker begins it, whose death would go unnoticed
        put_back(self.study, self._trial_of(identity))
        return False

    def finish(self, trial: Trial, record: TrialRecord, floor: float) -> bool:
        """Report a trial to the study, and keep it here then; False where it was given to another worker meanwhile."""
        constraints = {CONSTRAINT + name: value for name, value in record_constraints(record, floor).items()}
        values = values_of(record, self._setting.objectives)
        state = TrialState.PRUNED if values is None else TrialState.COMPLETE
        storage = cast("SharedStorage", self.study._storage)  # noqa: SLF001 - as above
        identity, weights = trial._trial_id, self._place.weights  # noqa: SLF001 - as above
        file = file_of(self._setting.folder, record.trial)
        if weights is not None:  # devices of other kinds may have joined that have finished nothing yet
            self._heard.learn_kinds(self.study.user_attrs)
        is_shared = weights is not None and self._heard.is_on_front(record)
        name = new_name(file) if is_shared else None  # None too: what is tried again may have the name it had
        self._heartbeat.mark(None)
        try:
            storage.end_trial(identity, Ending(state, values, {RECORD: record.to_dict(), ARTIFACT: name}, constraints))
        except optuna.exceptions.UpdateFinishedTrialError:
            kept = storage.get_trial(identity)
            if kept.state not in ENDED or kept.user_attrs.get(WORKER) != self._place.worker:
                self._place.say(LOST.format(record.trial))
                return False
        if record.state == "rejected" and trial.number in self._mine:
            refuses = self._place.worker if is_of_its_worker(record) else self._setting.kind
            self.study.add_trial(offered(self._mine[trial.number], refuses))  # others may have room for it
        append_record(self._setting.folder, record)
        self._heard.add(record)
        if weights is not None:
            weights.send(record.trial, file, name)
        return True

    def unwanted(self, records: Sequence[TrialRecord], front_here: Collection[int]) -> set[int]:
        """Return the trials that are on no kind's front."""
        unwanted = {record.trial for record in records} - set(front_here) - self._heard.fronts
        if self._place.weights is not None:
            self._place.weights.drop(unwanted)
        return unwanted

    def _look(self) -> list[TrialRecord]:
        """Return what was finished since the last look, by anybody, as it is on this device."""
        self._refresh()
        found, heard = list[TrialRecord](), self._heard
        for trial in self._trials:
            if trial.number in heard.numbers or not trial.state.is_finished():
                continue
            heard.numbers.add(trial.number)
            if trial.state is TrialState.FAIL and GIVEN_UP in trial.user_attrs:
                self._place.say(DIED.format(trial.number, trial.user_attrs[GIVEN_UP]))
            try:
                record = record_in(trial, self._template)
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

    def _refresh(self) -> None:
        self._trials = self.study.get_trials(deepcopy=False)

    def _looked(self) -> list[FrozenTrial]:
        self._refresh()
        return self._trials

    def _trial_of(self, identity: int) -> FrozenTrial:
        return next(trial for trial in self._trials if trial._trial_id == identity)  # noqa: SLF001 - as above

    def _begun(self, trial: FrozenTrial, lowest: int) -> Trial:
        """Take a trial over that waited, or that was begun."""
        storage, identity = self.study._storage, trial._trial_id  # noqa: SLF001 - as above
        self._heartbeat.mark(identity)
        for name, value in begun_by(self._place.worker, self._setting.kind, trial, lowest).items():
            storage.set_trial_user_attr(identity, name, value)
        self._mine[trial.number] = trial
        return self._trial(trial)

    def _trial(self, trial: FrozenTrial) -> Trial:
        self.study.sampler = sampler_of(self._setting.sampler, seeded(self.seed, trial.number))
        return Trial(self.study, trial._trial_id)  # noqa: SLF001 - Optuna has no public way to take up a running trial
