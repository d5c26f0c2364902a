"""A worker joins a shared study, or begins it, and leaves it."""

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import optuna

from tuner.errors import RunError, TunerError
from tuner.results.folder import Identity, RunInfo, Spent, write_run
from tuner.results.kinds import Kind
from tuner.search.processes.guard import Interrupt
from tuner.search.setting import CLOSING_SECONDS, Setting
from tuner.search.trials.access import StudyAccess
from tuner_fleet.address import Address
from tuner_fleet.artifacts.place import Bucket
from tuner_fleet.artifacts.weights import SharedWeights
from tuner_fleet.storage.patient import Patience, close, open_storage, patient
from tuner_fleet.study.content import (
    FIRST,
    KINDS,
    LEFT,
    RUN,
    UNTOUCHED,
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
        say: Receives messages.
        interrupt: The user's request to stop.
        end: Clock (`time.monotonic`) at which the command must be over; None for never.
        artifacts: Folder or bucket where weights of the front are put for others; None where each worker keeps its own.
        memory_bytes: Limit on the memory of this worker's trials; None for none.

    Attributes:
        address: Where the study is.
        device: This worker's, with its limit.

    Raises:
        TunerError: The database or the artifacts cannot be opened.
    """

    def __init__(
        self,
        address: Address,
        say: Callable[[str], object],
        interrupt: Interrupt,
        end: float | None,
        artifacts: Path | Bucket | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self._weights = None if artifacts is None else SharedWeights(artifacts, say)
        self.address, self.device = address, replace(this_device(), trial_bytes=memory_bytes)
        self._say, self._interrupt = say, interrupt
        self._rest: Callable[[float], None] = rest_until(end, interrupt.check)
        self._end, self._plain = end, open_storage(address)
        self._patience = Patience(self._wait, say)
        self._storage = patient(self._plain, self._patience)
        self._study: optuna.Study | None = None
        self._heartbeat: Heartbeat | None = None
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
            study = optuna.load_study(study_name=self.address.study, storage=self._storage)
        except KeyError:
            return
        if RUN in study.user_attrs:
            require_same(info_of(study.user_attrs, self.address), identity, model, objectives, self.address)

    def join(
        self, setting: Setting, info: RunInfo, beat: float = BEAT, grace: float = GRACE
    ) -> tuple[SharedQueue, RunInfo]:
        """Begin the study, or join it.

        Args:
            setting: This worker's.
            info: What this worker would begin the study with.
            beat: See `tuner_fleet.study.heartbeat`.
            grace: Likewise.

        Returns:
            Its trials, and what this worker's folder says of itself.

        Raises:
            RunError: The study is about something else.
        """
        study, is_first = make_study(self._storage, self.address, setting.objectives, info)
        names = [one.name for one in setting.objectives]
        attributes = self._described(study, info)
        theirs = info_of(attributes, self.address)
        require_same(theirs, info.identity, info.model.fingerprint, names, self.address)
        self._study, self.worker = study, info.worker or secrets.token_hex(NAME_BYTES)
        if is_first:
            study.set_user_attr(FIRST, self.worker)
        kind = Kind(self.device, setting.rates)
        known = theirs.kinds.get(self.kind)
        if known is None or (kind.rates.complete and not known.rates.complete):
            study.set_user_attr(KINDS + self.kind, asdict(kind))
        kinds = {**theirs.kinds, self.kind: kind}
        self.spend(info.spent)
        self._heartbeat = Heartbeat(study, self._plain, beat, grace)
        place = Place(self.worker, kinds, self._rest, self._say, self._weights)
        self._queue = queue = SharedQueue(study, setting, place, self._heartbeat)
        self._heartbeat.start()
        doing = "begins" if is_first else f"joins, with {len(queue.records)} trials done,"
        self._say(f"worker {self.worker} {doing} the study {self.address.shown} ({self.device})")
        info = replace(info, kinds=kinds, kind=self.kind, worker=self.worker)
        write_run(setting.folder, info)
        return queue, info

    def spend(self, spent: Spent) -> None:
        """Say what this worker has spent so far, if the database answers: its folder has it in any case."""
        if self._study is None:
            return
        with suppress(TunerError):
            self._study.set_user_attr(WORKERS + self.worker, asdict(spent))

    def share_untouched(self, scores: Mapping[str, Any]) -> None:
        """Say how the given model scores, which is the same on every device."""
        if self._study is not None:
            plain = {
                name: {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value
                for name, value in scores.items()
            }
            self._study.set_user_attr(UNTOUCHED, plain)

    def leave(self) -> None:
        """End: what was begun is left to the others at once, where the database answers; weights are sent."""
        try:
            if self._heartbeat is not None:
                self._heartbeat.stop()
                with suppress(Exception):  # they notice it later
                    self._heartbeat.give_up(counts=not self._interrupt.asked)
                    if self._queue is not None and self._queue.is_new:
                        self._queue.study.set_user_attr(FIRST, LEFT)
            if self._weights is not None:
                left = math.inf if self._end is None else self._end - CLOSING_SECONDS / 2 - time.monotonic()
                self._weights.leave(left, self._interrupt)
        finally:
            close(self._plain)

    def _described(self, study: optuna.Study, info: RunInfo) -> dict[str, Any]:
        """Return the study's attributes, as soon as it says what it is about."""
        for _ in range(int(DESCRIBED_SECONDS / LOOK_SECONDS)):
            attributes = study.user_attrs
            if RUN in attributes or study.get_trials(deepcopy=False):
                return attributes
            self._rest(LOOK_SECONDS)
        study.set_user_attr(RUN, as_attribute(info))
        return study.user_attrs

    def _wait(self, seconds: float) -> None:
        self._rest(seconds)
        if self._end is not None and time.monotonic() >= self._end:
            raise RunError(
                f"the study {self.address.shown} did not answer until the time was up: see that it runs, then give the "
                "same command with --resume"
            )


def _plain(value: Any) -> Any:
    """Return JSON's types."""
    return value if isinstance(value, int | float | str) else asdict(value)


def rest_until(end: float | None, check: Callable[[], None]) -> Callable[[float], None]:
    """Return a function that sleeps, but not beyond the end of the time.

    Args:
        end: Clock (`time.monotonic`); None for never.
        check: Raises where the user asked for the end.
    """

    def rest(seconds: float) -> None:
        check()
        time.sleep(max(0.0, min(seconds, seconds if end is None else end - time.monotonic())))

    return rest
