"""The service around a bundle: predicts, explores, keeps samples, asks for rounds, and puts a better model in place.

Source: PersEPhonEE (HotMobile 2021), section 3.2: inference, exploration, personalisation.
"""

import math
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from tuner.bundle.format import FILE, Bundle, file_hash
from tuner.bundle.rounds import WATCHING, State, device_folder, state_of
from tuner.commands.bundles.rings import discard, discard_made
from tuner.errors import BundleError, StoreError, TunerError
from tuner.runtime.infer.personaliser import Personaliser, Sample
from tuner.runtime.infer.prediction import Prediction
from tuner.runtime.train.gate import Rules, Verdict, refused
from tuner_watch.conditions import Conditions, Readings, read_device, unmet
from tuner_watch.incoming import PredictedFiles
from tuner_watch.monitor import (
    EXIT,
    Watch,
    after_round,
    answered,
    due,
    explored,
    streams_of,
    watched,
)
from tuner_watch.ring import Ring
from tuner_watch.round import RoundResult, RoundTraining, run_round
from tuner_watch.serving import ServingModel, install_round
from tuner_watch.state import SAVE_SECONDS, SHOWN, Round, ServiceState, StateFile

LOOK_SECONDS = 1.0  # between two checks of whether a round may start, and of whether it has ended
#: Between two checks while no file comes: whether a round that is due may start, and whether all is as it was.
WAITING_SECONDS, RESTING_SECONDS = 60.0, 900.0
#: File of the hashes of files that were predicted.
PREDICTED = "predicted"
NO_TRAINER = "this bundle cannot train here: export it with --trainable"


@dataclass(frozen=True, slots=True)
class Policy:
    """How the service decides.

    Attributes:
        watch: When drift is detected, and when a round is due.
        rules: What a new model must show.
        conditions: When a round may start.
    """

    watch: Watch = field(default_factory=Watch)
    rules: Rules = field(default_factory=Rules)
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class World:
    """Surroundings of the service; tests give their own.

    Attributes:
        readings: Function that reads the device's state.
        clock: Function that returns seconds since 1970.
        draw: Generator that decides which samples are explored.
        threads: Threads of the model, within an operator; all that the process may use where it is None.
        unknown: Whether predictions say how unlike the user's samples a sample is, where the bundle can tell.
    """

    readings: Callable[[], Readings] = read_device
    clock: Callable[[], float] = time.time
    draw: random.Random = field(default_factory=random.Random)
    threads: int | None = None
    unknown: bool = False


class Orchestrator:
    """A bundle in service. Use it as a context manager; one at a time for each bundle.

    Args:
        folder: Folder of the bundle as it was exported.
        ring: Ring that keeps new samples.
        training: How to train; without it rounds are asked for and reported, but none runs.
        policy: How to decide.
        world: Surroundings.

    Raises:
        BundleError: No round of the bundle can be used, or another process watches it.
    """

    def __init__(
        self,
        folder: Path,
        ring: Ring,
        training: RoundTraining | None = None,
        policy: Policy | None = None,
        world: World | None = None,
    ) -> None:
        self.folder, self.ring = folder, ring
        self._training, self._policy, self._world = training, policy or Policy(), world or World()
        Bundle.read(folder)  # raises an error before anything is written into a folder that is not a bundle
        home = device_folder(folder)
        self._lock = FileLock(home / WATCHING, mode=0o600, timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise BundleError(f"{folder} is watched already, by another process: stop that one first") from None
        except OSError as error:
            raise BundleError(
                f"{home} cannot be written ({error.strerror}): check its permissions, and free space"
            ) from None
        discard_made(folder)  # by a process that was killed: it holds features of samples
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="round")
        self._round: _Running | None = None
        self._looked, self._exploration = -math.inf, Exploration(self._policy.watch, self._world.readings)
        try:
            self._memory = StateFile(folder, self._world.clock)
            missed, newest = ring.since(self.state.newest)  # a kill came before they were counted
            if newest != self.state.newest:
                self._memory.state = replace(self.state, new_samples=self.state.new_samples + missed, newest=newest)
            self.predicted = PredictedFiles(home / PREDICTED)
            self._serving = ServingModel(folder, self._memory, self._world.threads, unknown=self._world.unknown)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> ServiceState:
        """Current state."""
        return self._memory.state

    @property
    def model(self) -> Personaliser:
        """Model in use."""
        return self._serving.model

    def close(self) -> None:
        """Wait for a round that is training, and save the state."""
        try:
            self.tend(wait=True, start=False)
            self.save()
        finally:
            self._worker.shutdown()
            self._lock.release()

    def infer(self, sample: Sample, label: str | None = None, recording: str = "") -> Prediction:
        """Predict a sample, look for drift, and keep the sample for training.

        Args:
            sample: As `Personaliser.predict` takes it.
            label: True label, where it is known.
            recording: As `Ring.add` takes it.

        Raises:
            TunerError: The sample has another shape, or no round of the bundle can compute it (`UnusableError`).
        """
        self._serving.refresh()
        self.model.check(sample[None])
        watch = self._exploration.settings() if self.model.exits > 1 else self._policy.watch
        explore = self._world.draw.random() < watch.exploration
        prediction, probabilities = self._serving.predict(sample, explore=explore)
        state, streams = self.state, streams_of(prediction, label, self.model.bundle)
        if probabilities is not None:
            losses = self.model.bundle.targets.exit_losses(probabilities)
            streams |= {f"{EXIT} {index}": loss for index, loss in enumerate(losses)}
            state = explored(state, losses)
        state = answered(state, prediction, self.model.exits)
        self._memory.state = watched(state, streams, self.model.thresholds, watch)
        self.model.thresholds = self.state.thresholds or self.model.thresholds
        self._keep(sample, label, recording)
        return prediction

    def tend(self, *, wait: bool = False, start: bool = True) -> Verdict | None:
        """Start a round where one is due and may start; put the model of a finished one in place, if it is accepted.

        Args:
            wait: Whether to wait until a round that is training has ended.
            start: Whether a round may start.

        Returns:
            The verdict on a round that has ended; None without one.
        """
        if start and self._round is None:
            self._start()
        verdict = None
        if self._round is not None and (wait or self._round.future.done()):
            running, self._round = self._round, None
            verdict = self._finish(running, running.future.result())
        if self._memory.is_due:
            self.save()
        return verdict

    @property
    def rest_seconds(self) -> float:
        """Time after which `tend` has something to do, though no file comes."""
        if self._round is not None:
            return LOOK_SECONDS
        if self._memory.is_changed:
            return SAVE_SECONDS
        return WAITING_SECONDS if self._training is not None and self._due() is not None else RESTING_SECONDS

    def waiting(self) -> str | None:
        """Return what a round that is due waits for; None where none is due, or one is training."""
        if self._due() is None or self._round is not None:
            return None
        return NO_TRAINER if self._training is None else unmet(self._policy.conditions, self._world.readings())

    def outlook(self) -> str:
        """Return when the next round comes, for people."""
        if self._training is None:
            return f"no round of training comes: {NO_TRAINER}"
        if self._round is not None:
            return "a round of training is running"
        if self._due() is None:
            new, enough = min(self.state.new_samples, len(self.ring)), self._policy.watch.enough
            return f"the next round of training comes after {enough - new:,} more (--enough {enough})"
        waits = self.waiting()
        return "a round is due" if waits is None else f"a round is due, but {waits}; with --now it does not wait"

    def save(self) -> None:
        """Write the state; a full disk is a problem, not the end."""
        due, waits = self._due(), self.waiting()
        if (due, waits) != (self.state.due, self.state.waits):
            self._memory.state = replace(self.state, due=due, waits=waits)
        if self._memory.is_changed:
            self._memory.save()

    def _due(self) -> str | None:
        return due(self.state, len(self.ring), self._policy.watch)

    def _keep(self, sample: Sample, label: str | None, recording: str) -> None:
        try:
            is_new = self.ring.add(sample, label, recording)
        except StoreError as error:
            self._memory.add_problem(str(error))
            return
        if is_new:
            newest = self.ring.since(self.state.newest)[1]
            self._memory.state = replace(self.state, new_samples=self.state.new_samples + 1, newest=newest)

    def _start(self) -> None:
        reason = self._due()
        if reason is None or time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        if self._training is None or self.waiting() is not None:
            return
        state = state_of(self.folder)  # before the samples are read: a forget in between is noticed
        samples = self.ring.load()
        learned = self.ring.learned(self.model.bundle.identity)
        future = self._worker.submit(run_round, self.model, samples, self._training, self._policy.rules, learned)
        still = learned.intersection(sample.identity for sample in samples)
        self._round = _Running(reason, self.state.new_samples, state, still, future)

    def _finish(self, running: "_Running", result: RoundResult) -> Verdict:
        verdict, name = result.verdict, ""
        try:
            if verdict.accepted and result.made is not None:
                identities = running.learned.union(sample.identity for sample in result.used)
                if state_of(self.folder) == running.state:  # else installing it says why it is not
                    self.ring.note_learned(file_hash(result.made / FILE), identities)  # first: these never judge it
                name = install_round(self.folder, result.made, running.state)
        except (OSError, TunerError) as error:
            verdict = refused(f"the new bundle cannot be put in place ({error}): the old one stays")
        finally:
            if result.made is not None:
                discard(result.made)
        about = (len(result.used), running.asked, verdict.accepted, verdict.reason, verdict.evidence, name)
        latest = Round(self._world.clock(), *about)
        self._memory.state = replace(
            after_round(self.state, swapped=False),
            rounds=(*self.state.rounds, latest)[-SHOWN:],
            new_samples=self.state.new_samples - running.new_samples,
        )
        if verdict.accepted:
            self._serving.open()
        self.save()
        return verdict


@dataclass(frozen=True, slots=True)
class _Running:
    """A round that is training, with what held when it started; `learned` are samples of the model in use."""

    asked: str
    new_samples: int
    state: State
    learned: frozenset[str]
    future: Future[RoundResult]


#: Least time between two readings of the device: its load is a mean of a minute.
READ_SECONDS = 30.0


def spare(readings: Readings) -> float:
    """Return the share of exploration that the device can do, in [0, 1]: what is idle, on battery times its charge."""
    idle = 1.0 if readings.load is None else max(0.0, 1.0 - readings.load)
    charge = 1.0 if readings.charging is not False or readings.battery is None else readings.battery
    return idle * charge


class Exploration:
    """The settings of a watch, as the device allows them at the moment.

    Source: PersEPhonEE (HotMobile 2021), section 3.4: the rate of exploration and the step of a threshold follow load
    and battery. A threshold that rises costs work too: more samples reach the next exit. The given settings are those
    of an idle device with mains power.
    """

    def __init__(self, watch: Watch, readings: Callable[[], Readings]) -> None:
        self._watch, self._readings = watch, readings
        self._read, self._current = -math.inf, watch

    def settings(self) -> Watch:
        """Return the current settings."""
        if time.monotonic() - self._read >= READ_SECONDS:
            share, watch = spare(self._readings()), self._watch
            self._read = time.monotonic()
            self._current = replace(watch, exploration=watch.exploration * share, step=watch.step * share)
        return self._current
