"""What each call of a shared study's storage takes, of the client, of the proxy and of the database, for `fleet`."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from statistics import median

import numpy as np
import psutil
from optuna.trial import FrozenTrial, TrialState, create_trial

from benchmarks.fleet.levels import processor_of
from benchmarks.fleet.processes import database_seconds
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.storage.patience import Patience, patient
from tuner_fleet.storage.trials import Trials
from tuner_fleet.study.content import RECORD
from tuner_fleet.study.heartbeat import BEAT, MARK

CREATE, GET, END, SET, READ = "create_new_trial", "get_trial", "end_trial", "set_trial_user_attr", "get_all_trials"


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a call.

    Attributes:
        wall: Until the answer, in the median.
        client: Of the worker's processor.
        proxy: Of the proxy's processor.
        database: Of the database's processors.
    """

    wall: float
    client: float
    proxy: float
    database: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Cost)))

    def __mul__(self, times: float) -> "Cost":
        return Cost(*(times * getattr(self, one.name) for one in fields(Cost)))


@dataclass(frozen=True, slots=True)
class Costs:
    """What the calls of one way to the database take.

    Attributes:
        calls: By name; a read where no trial runs.
        running: More of a read for each trial that runs.
        finished: More of a read for each trial that has ended since the last one.
        lock: Seconds for which a trial that is made keeps others from being made, at most.
    """

    calls: Mapping[str, Cost]
    running: Cost
    finished: Cost
    lock: float

    def of_trial(self, workers: int) -> Cost:
        """Return what one of a worker's trials takes: two reads; and of each trial of the others, its end is read."""
        own = self.calls[CREATE] + self.calls[GET] + self.calls[END]
        return own + (self.calls[READ] + self.running * workers) * 2 + self.finished * workers

    def of_beats(self, workers: int) -> Cost:
        """Return what the heartbeats of all take of a second."""
        return (self.calls[SET] + self.calls[READ] + self.running * workers) * (workers / BEAT)


class Way:
    """One way to a study, over which calls are timed.

    Args:
        url: Address of the study.
        proxy: The process that it may lead to.
    """

    def __init__(self, url: str, proxy: psutil.Process) -> None:
        self._address, self._proxy = read_address(url), proxy
        self.calls: dict[str, Cost] = {}
        self.open()

    def open(self) -> None:
        """Begin anew, with nothing read so far."""
        self._stack = ExitStack()
        plain = self._stack.enter_context(opened(self._address))
        self.trials = Trials(patient(plain, Patience(time.sleep, print)), self._address.study)

    def close(self) -> None:
        """End."""
        self._stack.close()

    def read(self) -> list[FrozenTrial]:
        """Return the trials; only what may have changed is asked for."""
        return self.trials.all()

    def timed(self, call: Callable[[], object], times: int) -> Cost:
        """Return what a call takes in the mean of so many."""
        walls, before = [], self._processors()
        for _ in range(times):
            started = time.perf_counter()
            call()
            walls.append(time.perf_counter() - started)
        client, proxy, database = (now - then for now, then in zip(self._processors(), before, strict=True))
        return Cost(median(walls), client / times, proxy / times, database / times)

    def _processors(self) -> tuple[float, float, float]:
        return time.process_time(), processor_of(self._proxy), database_seconds()


def measure_costs(urls: Sequence[str], proxy: psutil.Process, running: Sequence[int], times: int) -> list[Costs]:
    """Return the costs of several ways to one study that is full of ended trials; some that run are left in it.

    Args:
        urls: Addresses of it.
        proxy: The process that some of them lead to.
        running: How many trials run when the others are read.
        times: How often each call is made.
    """
    ways = [Way(url, proxy) for url in urls]
    ended = ways[0].read()
    content = ended[0].user_attrs
    template = create_trial(
        state=TrialState.RUNNING,
        params=ended[0].params,
        distributions=ended[0].distributions,
        user_attrs={name: value for name, value in content.items() if name != RECORD},
    )
    begun: list[int] = []

    def create(way: Way) -> None:
        begun.append(way.trials.make(template))

    def end(way: Way) -> None:
        way.trials.end(begun.pop(), ended[0].values, {RECORD: content[RECORD]}, ended[0].system_attrs)

    finished: list[Cost] = []
    for way in ways:
        way.read()  # the proxy's own first look, and statements that are compiled once
        way.close()
        way.open()
        finished.append(way.timed(way.read, 1) * (1 / len(ended)))
        for name, call in ((CREATE, create), (END, end)):
            create(way)
            way.calls[name] = way.timed(partial(call, way), times)
        way.calls[GET] = way.timed(partial(way.trials.get, begun[0]), times)
        way.calls[SET] = way.timed(partial(way.trials.set_attribute, begun[0], MARK, 1.0), times)
    reads: list[list[Cost]] = [[] for _ in ways]
    for count in running:
        while len(begun) < count:
            create(ways[0])
        for way, found in zip(ways, reads, strict=True):
            way.read()
            found.append(way.timed(way.read, max(5, times // 20)))
    costs = []
    for way, found, each in zip(ways, reads, finished, strict=True):
        more, fixed = _line(running, found)
        costs.append(Costs({**way.calls, READ: fixed}, more, each, ways[0].calls[CREATE].wall))
        way.close()
    return costs


def _line(running: Sequence[int], reads: Sequence[Cost]) -> tuple[Cost, Cost]:
    """Return the slope and the intercept of what reads take over the trials that run, none of them below zero."""
    pairs = [np.polyfit(running, [getattr(one, field.name) for one in reads], 1) for field in fields(Cost)]
    slopes, fixed = zip(*(np.maximum(0.0, pair).tolist() for pair in pairs), strict=True)
    return Cost(*slopes), Cost(*fixed)
