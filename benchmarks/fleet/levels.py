"""What so many workers at once finish, and what it takes of whom: the measured points of `benchmarks.fleet`."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from benchmarks.fleet.processes import Fleet, database_seconds
from benchmarks.fleet.worker import storage_seconds


@dataclass(frozen=True, slots=True)
class Level:
    """What so many workers did in some time.

    Attributes:
        workers: How many they are.
        pad: Seconds of a trial in which its worker sleeps.
        trials: That they finished.
        rate: Trials a second.
        calls: By method of the storage, calls a trial and their seconds.
        processor: Seconds of the workers' processors a trial.
        database: Seconds of the database's processors a trial.
        proxy: Seconds of the proxy's processor a trial.
        cores: That other programs of the machine left, in the mean.
    """

    workers: int
    pad: float
    trials: int
    rate: float
    calls: Mapping[str, tuple[float, float]]
    processor: float
    database: float
    proxy: float
    cores: float

    @property
    def storage_ms(self) -> float:
        """Milliseconds a trial that a worker waits for the storage."""
        return 1e3 * sum(seconds for _, seconds in self.calls.values())


def measure_level(fleet: Fleet, workers: int, pad: float, seconds: float, proxy: psutil.Process | None = None) -> Level:
    """Let so many workers work for some time.

    Args:
        fleet: Those that have joined; others are started.
        workers: How many are to work.
        pad: See `Level`.
        seconds: How long.
        proxy: That they ask, if there is one.
    """
    fleet.start(workers - len(fleet.processes))
    name, before = f"level-{workers}", _clocks(proxy)
    fleet.order(name, seconds)
    found = fleet.results(name)
    passed, database, of_proxy, busy = (now - then for now, then in zip(_clocks(proxy), before, strict=True))
    trials, own = sum(one["trials"] for one in found), sum(one["processor"] for one in found)
    others = max(0.0, busy - own - database - of_proxy)
    return Level(
        workers,
        pad,
        trials,
        sum(one["trials"] / one["seconds"] for one in found),
        storage_seconds(found),
        own / trials,
        database / trials,
        of_proxy / trials,
        max(0.1, (os.cpu_count() or 1) - others / passed),
    )


def processor_of(process: psutil.Process | None) -> float:
    """Return the processor time of a process."""
    return 0.0 if process is None else float(sum(process.cpu_times()[:2]))


def _clocks(proxy: psutil.Process | None) -> tuple[float, float, float, float]:
    return time.monotonic(), database_seconds(), processor_of(proxy), _busy()


def _busy() -> float:
    """Return the processor time of all programs since the machine was started."""
    times = psutil.cpu_times()
    return float(
        sum(times) - times.idle - times.iowait - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    )
