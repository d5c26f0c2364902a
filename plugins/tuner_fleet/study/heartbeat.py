"""Workers that die: each marks the trial that it works on again and again, and retires those that nobody marks.

Optuna's own heartbeat is a table of the database, which its proxy does not pass on: workers behind a proxy would be
blind to it, and invisible. So the mark is an attribute of the trial, a number that grows. Who looks needs no clock in
common with who marks: a trial is retired when its mark stays the same for `GRACE` seconds of looking. What follows is
Optuna's: the trial fails, and `RetryHeartbeatStaleTrialCallback` puts its plan in the queue again.
"""

import copy
import time
import warnings
from contextlib import suppress
from threading import Event, Thread

import optuna
from optuna.storages import BaseStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState

from tuner_fleet.storage.patience import Patience, patient
from tuner_fleet.storage.trials import Trials
from tuner_fleet.study.claims import retries_of
from tuner_fleet.study.content import GIVEN_UP, HELD

#: Seconds between two marks; seconds with the same mark after which a trial's worker is taken for dead.
BEAT, GRACE = 5.0, 30.0
#: A plan whose worker died is tried again so many times.
MOST_RETRIES = 3
MARK = "mark"


class StoppedError(Exception):
    """The study is over: the thread need not wait for the database."""


class Heartbeat:
    """A thread that marks this worker's trial, and looks at those of the others.

    Args:
        storage: As the database gives it: while that does not answer, no time passes for anybody.
        name: Of the study there.
        beat: See `BEAT`.
        grace: See `GRACE`.
    """

    def __init__(self, storage: BaseStorage, name: str, beat: float = BEAT, grace: float = GRACE) -> None:
        self._over, self._beat, self._grace = Event(), beat, grace
        self._trials = Trials(patient(storage, Patience(self._wait, lambda _line: None)), name)
        self._own: int | None = None
        self._seen: dict[int, tuple[object, float]] = {}
        self._looked = time.monotonic()
        self._thread = Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for a database that does not answer."""
        self._over.set()
        if self._thread.is_alive():  # it has not begun where joining failed
            self._thread.join(timeout=2 * self._beat)

    def mark(self, number: int | None) -> None:
        """Mark a trial from now on; None for none."""
        self._own = number

    def give_up(self, *, counts: bool) -> None:
        """Leave its trial to the others, once the thread has stopped; with `counts`, it may be why it ends."""
        if self._own is not None:
            retire(self._trials, self._own) if counts else put_back(self._trials, self._own)

    def look(self) -> list[int]:
        """Mark this worker's trial, and retire the trials of dead workers; return the numbers of these."""
        own, now = self._own, time.monotonic()
        passed, self._looked = min(self._beat, now - self._looked), now
        if own is not None:
            self._set_mark(own)
        seen, retired = dict[int, tuple[object, float]](), list[int]()
        for trial in self._trials.all(TrialState.RUNNING):
            if trial.number == own:
                continue
            mark = trial.user_attrs.get(MARK)
            before, still = self._seen.get(trial.number, (None, -passed))
            still = still + passed if before == mark else 0.0
            if still < self._grace:
                seen[trial.number] = mark, still
            elif retire(self._trials, trial.number):
                retired.append(trial.number)
        self._seen = seen
        return retired

    def _run(self) -> None:
        while not self._over.wait(self._beat):
            try:
                self.look()
            except StoppedError:
                return
            except Exception:  # noqa: BLE001, S112 - a thread that ends by one leaves its worker to be taken for dead
                continue

    def _wait(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise StoppedError

    def _set_mark(self, number: int) -> None:
        try:
            self._trials.set_attribute(number, MARK, time.monotonic())
        except optuna.exceptions.UpdateFinishedTrialError:  # it ended meanwhile, or was retired: see `finish`
            self._own = None if self._own == number else self._own


def put_back(trials: Trials, number: int) -> bool:
    """Put a trial in the queue again that its worker leaves to others; return whether it was still there to leave.

    It is the same trial, and no retry: no worker died of it.
    """
    with suppress(optuna.exceptions.UpdateFinishedTrialError):  # it was retired meanwhile
        if trials.get(number).user_attrs.get(HELD):
            trials.set_attribute(number, HELD, value=False)
        return trials.set_state(number, TrialState.WAITING)
    return False


def retire(trials: Trials, number: int) -> bool:
    """End a trial whose worker is dead, and put its plan in the queue again; return whether this call did.

    A plan that more than `MOST_RETRIES` workers died of is not: the trial then says of how many.
    """
    whole = copy.copy(trials.get(number))
    if whole.state is not TrialState.RUNNING:
        return False
    died = len(retries_of(whole)) + 1
    whole.user_attrs = {name: value for name, value in whole.user_attrs.items() if name != HELD}
    try:  # the state is last: the plan would be lost if this worker died in between
        if died > MOST_RETRIES:
            trials.set_attribute(number, GIVEN_UP, died)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                RetryHeartbeatStaleTrialCallback()(trials.study, whole)
        return trials.set_state(number, TrialState.FAIL)
    except optuna.exceptions.UpdateFinishedTrialError:  # it ended after all, or another worker was quicker
        return False
