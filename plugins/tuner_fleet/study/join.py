"""A worker joins a shared study, or begins it, and leaves it."""

import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from optuna.storages import BaseStorage

from tuner.errors import RunError, TunerError
from tuner.machine.awake import CLOCK
from tuner.results.folder import Identity, RunInfo, Spent, write_run
from tuner.results.kinds import Kind
from tuner.results.records.baseline import Baseline
from tuner.search.processes.guard import Interrupt
from tuner.search.setting import CLOSING_SECONDS, Setting
from tuner.search.trials.access import StudyAccess
from tuner_fleet.address import Address
from tuner_fleet.artifacts.weights import SharedWeights
from tuner_fleet.storage.patience import Patience, patient
from tuner_fleet.storage.trials import Trials
from tuner_fleet.study.content import (
    BASELINES,
    FIRST,
    KINDS,
    LEFT,
    RUN,
    WORKERS,
    as_attribute,
    info_of,
    make_study,
    require_same,
)
from tuner_fleet.study.device import this_device
from tuner_fleet.study.heartbeat import BEAT, GRACE, Heartbeat
from tuner_fleet.study.queue import Place, SharedQueue

#: Who makes a study says at once what it is about; if it dies before, who comes next says so after this many seconds.
DESCRIBED_SECONDS, LOOK_SECONDS = 5.0, 0.1
NAME_BYTES = 4


class SharedStudy(StudyAccess):
    """A worker's part in a shared study, from its first look to its end.

    Args:
        address: Where the study is.
        storage: The same, opened.
        say: Receives messages.
        interrupt: The user's request to stop.
        end: Clock (`tuner.machine.awake.CLOCK`) at which the command must be over; None for never.
        weights: Where weights of the front are put for others; None where each worker keeps its own.
        memory_bytes: Limit on the memory of this worker's trials; None for none.

    Attributes:
        address: Where the study is.
        device: This worker's, with its limit.
        heartbeat: Marks its trials; None before it joins.
    """

    def __init__(
        self,
        address: Address,
        storage: BaseStorage,
        say: Callable[[str], object],
        interrupt: Interrupt,
        end: float | None,
        weights: SharedWeights | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.address, self.device = address, replace(this_device(), trial_bytes=memory_bytes)
        self._say, self._interrupt, self._end, self._weights = say, interrupt, end, weights
        self._rest = rest_until(end, interrupt.check)
        self._plain, self._patience = storage, Patience(self._wait, say)
        self._storage = patient(storage, self._patience)
        self.heartbeat: Heartbeat | None = None
        self._queue: SharedQueue | None = None
        self.worker = ""

    @property
    def kind(self) -> str:
        """Name of this device's kind."""
        return self.device.name

    @property
    def seconds(self) -> float:
        """Seconds that the database took, those that it did not answer included."""
        return self._patience.seconds

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of devices that are known by now; none before it joins."""
        return {} if self._queue is None else dict(self._queue.kinds)

    def require_same(self, identity: Identity, model: str, objectives: Sequence[str]) -> None:
        """Check a study that exists before this device is measured; see `content.require_same`.

        Raises:
            RunError: It is about something else.
        """
        try:
            attributes = Trials(self._storage, self.address.study).study.user_attrs
        except KeyError:
            return
        if RUN in attributes:
            require_same(info_of(attributes, self.address), identity, model, objectives, self.address)

    def join(
        self, setting: Setting, info: RunInfo, beat: float = BEAT, grace: float = GRACE
    ) -> tuple[SharedQueue, RunInfo]:
        """Begin the study, or join it.

        Returns:
            Its trials, and what this worker's folder says of itself.

        Raises:
            RunError: The study is about something else.
        """
        trials, is_first = make_study(self._storage, self.address, setting.objectives, info)
        names = [one.name for one in setting.objectives]
        theirs = info_of(self._described(trials, info), self.address)
        require_same(theirs, info.identity, info.model.fingerprint, names, self.address)
        self.worker = info.worker or secrets.token_hex(NAME_BYTES)
        if is_first:
            trials.study.set_user_attr(FIRST, self.worker)
        kind = Kind(self.device, setting.rates)
        known = theirs.kinds.get(self.kind)
        if known is None or (kind.rates.complete and not known.rates.complete):
            trials.study.set_user_attr(KINDS + self.kind, asdict(kind))
        kinds = {**theirs.kinds, self.kind: kind}
        self.heartbeat = Heartbeat(self._plain, self.address.study, beat, grace)
        place = Place(self.worker, kinds, self._rest, self._say, self._weights)
        self._queue = queue = SharedQueue(trials, setting, place, self.heartbeat)
        self.spend(info.spent)
        self.heartbeat.start()
        doing = "begins" if is_first else f"joins, with {len(queue.records)} trials done,"
        self._say(f"worker {self.worker} {doing} the study {self.address.shown} ({self.device})")
        info = replace(info, kinds=kinds, kind=self.kind, worker=self.worker)
        write_run(setting.folder, info)
        return queue, info

    def spend(self, spent: Spent) -> None:
        """Say what this worker has spent so far, if the database answers: its folder has it in any case."""
        if self._queue is not None:
            with suppress(TunerError):
                self._queue.study.set_user_attr(WORKERS + self.worker, asdict(spent))

    def share_baselines(self, baselines: Sequence[Baseline]) -> None:
        """Say what the search is compared with, which scores the same on every device."""
        if self._queue is not None:
            self._queue.study.set_user_attr(BASELINES, [asdict(one) for one in baselines])

    def leave(self) -> None:
        """End: what was begun is left to the others at once, where the database answers; weights are sent."""
        if self.heartbeat is not None:
            self.heartbeat.stop()
            with suppress(Exception):  # they notice it later
                self.heartbeat.give_up(counts=not self._interrupt.asked)
                if self._queue is not None and self._queue.is_new:
                    self._queue.study.set_user_attr(FIRST, LEFT)
        if self._weights is not None:
            left = math.inf if self._end is None else self._end - CLOSING_SECONDS / 2 - CLOCK.now()
            self._weights.leave(left, self._interrupt)

    def _described(self, trials: Trials, info: RunInfo) -> dict[str, Any]:
        """Return the study's attributes, as soon as it says what it is about."""
        for _ in range(int(DESCRIBED_SECONDS / LOOK_SECONDS)):
            attributes = trials.study.user_attrs
            if RUN in attributes or trials.all():
                return attributes
            self._rest(LOOK_SECONDS)
        trials.study.set_user_attr(RUN, as_attribute(info))
        return trials.study.user_attrs

    def _wait(self, seconds: float) -> None:
        self._rest(seconds)
        if self._end is not None and CLOCK.now() >= self._end:
            raise RunError(
                f"the study {self.address.shown} did not answer until the time was up: see that it runs, then give the "
                "same command with --resume"
            )


def rest_until(end: float | None, check: Callable[[], None]) -> Callable[[float], None]:
    """Return a function that sleeps, but not beyond the end of the time."""

    def rest(seconds: float) -> None:
        check()
        time.sleep(max(0.0, min(seconds, seconds if end is None else end - CLOCK.now())))

    return rest
