"""The service around a bundle: answers, explores, keeps samples, asks for rounds, lets a better model in.

Source: PersEPhonEE (HotMobile 2021), section 3.2: inference, exploration, personalisation.
"""

import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

from tuner.errors import BundleError, StoreError, TunerError
from tuner.runtime.bundle import Bundle
from tuner.runtime.conditions import Conditions, Readings, read_device, unmet
from tuner.runtime.gate import Rules, Verdict, refused
from tuner.runtime.home import CURRENT, folder_of, place, prepared, standing
from tuner.runtime.personaliser import Personaliser, Prediction, Sample
from tuner.runtime.ring import Ring
from tuner.runtime.rounds import Ended, Training, run_round
from tuner.runtime.state import SHOWN, Problem, Round, read_state, write_state
from tuner.runtime.watching import (
    DOUBT,
    ERRORS,
    EXIT,
    Watch,
    answered,
    due,
    exit_losses,
    explored,
    settled,
    watched,
)

SAVE_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two looks at whether a round may start
LOCK = "watching.lock"
NO_TRAINER = "this bundle cannot train here: export it with --trainable"


class UnusableError(BundleError):
    """No round of a bundle can be used, the exported one included."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How the service decides."""

    watch: Watch = field(default_factory=Watch)
    rules: Rules = field(default_factory=Rules)
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class World:
    """What the service asks of its surroundings; tests give their own.

    Attributes:
        readings: What the operating system tells of the device.
        clock: Seconds since 1970.
        draw: Decides which samples are explored.
        threads: Of the model, within an operator; all the process may use where it is None.
    """

    readings: Callable[[], Readings] = read_device
    clock: Callable[[], float] = time.time
    draw: random.Random = field(default_factory=random.Random)
    threads: int | None = None


class Orchestrator:
    """A bundle in service. Use it as a context manager; one at a time for each bundle.

    Args:
        folder: The bundle's, as it was exported.
        ring: Where new samples are kept.
        training: How to train; without it rounds are asked for and told, but none runs.
        policy: How to decide.
        world: Surroundings.

    Raises:
        BundleError: No round of the bundle can be used, or another process watches it.
    """

    def __init__(
        self,
        folder: Path,
        ring: Ring,
        training: Training | None = None,
        policy: Policy | None = None,
        world: World | None = None,
    ) -> None:
        self.folder, self.ring = folder, ring
        self._training, self._policy, self._world = training, policy or Policy(), world or World()
        Bundle.read(folder)  # a folder that is no bundle is told before anything is written into it
        self._home = prepared(folder)
        self._lock = FileLock(self._home / LOCK, timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise BundleError(f"{folder} is watched already, by another process: stop that one first") from None
        except OSError as error:
            raise BundleError(f"{self._home} cannot be written ({error.strerror}): free some space") from None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="round")
        self._round: _Running | None = None
        self._saved = self._looked = 0.0
        try:
            self.state = read_state(folder)
            self._open()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for a round that is training, and save the state."""
        try:
            self.tend(wait=True, start=False)
            self.save()
        finally:
            self._worker.shutdown()
            self._lock.release()

    def infer(self, sample: Sample, label: str | None = None) -> Prediction:
        """Answer, and learn what can be learnt from the sample.

        Args:
            sample: As `Personaliser.predict` takes it.
            label: What it really is, where that is known.

        Raises:
            BundleError: The sample has another shape.
            UnusableError: No round of the bundle can compute it.
        """
        if self._pointer() != self._opened:  # rolled back meanwhile
            self._open()
        self.model.check(sample[None])
        prediction, seen = self._answered(sample)
        streams = {DOUBT: 1 - prediction.probability}
        if label is not None and self.model.bundle.loss == "single-label":
            streams[ERRORS] = float(prediction.label != label)
        if seen is not None:
            streams |= {f"{EXIT} {index}": loss for index, loss in enumerate(exit_losses(seen))}
            self.state = explored(self.state, seen)
        self.state = watched(
            answered(self.state, prediction, self.model.exits), streams, self.model.thresholds, self._policy.watch
        )
        self.model.thresholds = self.state.thresholds or self.model.thresholds
        self._keep(sample, label)
        return prediction

    def tend(self, *, wait: bool = False, start: bool = True) -> Verdict | None:
        """Start a round where one is due and may start; put the model of one that has ended in place, if it is let in.

        Args:
            wait: Until a round that is training has ended.
            start: Whether one may start.

        Returns:
            The verdict on a round that has ended.
        """
        if start and self._round is None:
            self._start()
        verdict = None
        if self._round is not None and (wait or self._round.future.done()):
            running, self._round = self._round, None
            verdict = self._ended(running, running.future.result())
        if self._world.clock() - self._saved >= SAVE_SECONDS:
            self.save()
        return verdict

    def waiting(self) -> str | None:
        """Return what a round that is due waits for; None where none is due, or one is training."""
        asked = due(self.state, len(self.ring), self._policy.watch)
        if asked is None or self._round is not None:
            return None
        return NO_TRAINER if self._training is None else unmet(self._policy.conditions, self._world.readings())

    def save(self) -> None:
        """Write down what is remembered; a disk that is full is a problem, not the end."""
        self._saved = self._world.clock()
        asked = due(self.state, len(self.ring), self._policy.watch)
        self.state = replace(self.state, due=asked, waits=self.waiting())
        try:
            write_state(self.folder, self.state)
        except OSError as error:
            self.problem(f"{self.folder} cannot be written ({error.strerror}): what was counted may be lost")

    def problem(self, line: str) -> None:
        """Remember what went wrong; the same line twice in a row once."""
        if not self.state.problems or self.state.problems[-1].line != line:
            found = (*self.state.problems, Problem(self._world.clock(), line))
            self.state = replace(self.state, problems=found[-SHOWN:])

    def _pointer(self) -> tuple[int, ...]:
        """Return what tells this list of rounds from the one it replaced; nothing without one."""
        try:
            held = (self._home / CURRENT).stat()
        except FileNotFoundError:
            return ()
        return held.st_ino, held.st_mtime_ns

    def _open(self, after: str | None = None) -> None:
        """Open the newest round that works, beginning after one that does not."""
        self._opened = self._pointer()
        names = standing(self.folder)
        for name in names[names.index(after) + 1 :] if after in names else names:
            state = self.state
            if name != state.round:
                state = replace(settled(state, swapped=True), round=name)
            try:
                bundle = Bundle.read(folder_of(self.folder, name))
                self.model = Personaliser(bundle, self._world.threads, state.thresholds)
            except BundleError as error:
                self.problem(f"round {name} is not used: {error}")
                continue
            self.state = state
            return
        raise UnusableError(f"{self.folder}: no round of it works: {self.state.problems[-1].line}")

    def _answered(self, sample: Sample) -> tuple[Prediction, npt.NDArray[np.float64] | None]:
        """Answer, by an older round if need be; now and then with what every exit says: float64 [exits, labels]."""
        explores = self._world.draw.random() < self._policy.watch.exploration
        while True:
            try:
                prediction = self.model.predict(sample)
                seen = self.model.every_exit(sample[None])[:, 0] if explores and self.model.exits > 1 else None
            except BundleError as error:
                self.problem(f"round {self.state.round} is not used: {error}")
                self._open(after=self.state.round)
            else:
                return prediction, seen

    def _keep(self, sample: Sample, label: str | None) -> None:
        try:
            new = self.ring.add(sample, label)
        except StoreError as error:
            self.problem(str(error))
            return
        self.state = replace(self.state, new_samples=self.state.new_samples + new)

    def _start(self) -> None:
        asked = due(self.state, len(self.ring), self._policy.watch)
        if asked is None or self._world.clock() - self._looked < LOOK_SECONDS:
            return
        self._looked = self._world.clock()
        if self._training is None or self.waiting() is not None:
            return
        kept = self.ring.load()
        future = self._worker.submit(run_round, self.model, kept, self._training, self._policy.rules)
        self._round = _Running(asked, self.state.new_samples, future)

    def _ended(self, running: "_Running", ended: Ended) -> Verdict:
        verdict = ended.verdict
        try:
            if verdict.accepted and ended.made is not None:
                place(self.folder, ended.made)
        except (OSError, TunerError) as error:
            verdict = refused(f"the new bundle cannot be put in place ({error}): the old one stays")
        finally:
            if ended.made is not None:
                shutil.rmtree(ended.made, ignore_errors=True)
        record = Round(self._world.clock(), ended.samples, running.asked, verdict.accepted, verdict.reason)
        since = self.state.new_samples - running.new_samples
        rounds = (*self.state.rounds, record)[-SHOWN:]
        self.state = replace(settled(self.state, swapped=False), rounds=rounds, new_samples=since)
        if verdict.accepted:
            self._open()
        self.save()
        return verdict


@dataclass(frozen=True, slots=True)
class _Running:
    """A round that is training: why, how many new samples there were when it began, and what will come of it."""

    asked: str
    new_samples: int
    future: Future[Ended]
