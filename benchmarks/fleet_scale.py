"""How many workers one database carries, to a thousand of them, and what the proxy changes: for `benchmarks.fleet`.

The storage's calls are timed one by one (`benchmarks.fleet_costs`), and put into a queueing network
(`benchmarks.fleet_model`), which is held to what 1 to 16 workers were measured to finish. There the workers' own Python
shares the machine's processors with the database, and what a trial takes of them is measured at each number of workers:
two processors of one core are slower together. In a fleet, each worker has a device. Shared are then

- the database's processors, as many as this machine has;
- the lock under which trials are numbered, one after the other: as long as making one takes, next to the database;
- where workers ask the proxy, its one processor: it is a Python process.

Each worker's heartbeat reads the running trials every few seconds, so that what all heartbeats take grows with the
square of their number.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil

from benchmarks.fleet_costs import Costs
from benchmarks.fleet_levels import Level
from benchmarks.fleet_model import Station, throughput
from benchmarks.report import Row

WORKERS, LENGTHS = (16, 50, 100, 200, 500, 1000), (2.0, 30.0, 300.0)
#: A study is full where a worker more brings less than so much of a trial that waits for nobody.
LINEAR, MOST = 0.9, 1000
CORES = os.cpu_count() or 1


@contextmanager
def proxy_of(url: str) -> Iterator[tuple[str, psutil.Process]]:
    """Give the address of a proxy in front of a database, and its process."""
    study = url.partition("#")[2]
    port = re.sub(r".*:(\d+)/.*", r"\1", url)
    own = str(int(port) + 1)
    command = [sys.executable, "-m", "tuner_fleet.proxy", url, "--port", own]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the proxy does not start")
            yield f"grpc://localhost:{own}#{study}", psutil.Process(process.pid)
        finally:
            process.terminate()


def cost_rows(names: Sequence[str], costs: Sequence[Costs]) -> list[Row]:
    """Return the table of what calls take."""
    rows: list[Row] = []
    for name, way in zip(names, costs, strict=True):
        calls = {**way.calls, "of a read: each running trial": way.running, "each trial that ended": way.finished}
        rows += [
            {
                "call": call,
                "by": name,
                "ms": 1e3 * cost.wall,
                "worker's processor ms": 1e3 * cost.client,
                "proxy's ms": 1e3 * cost.proxy,
                "database's ms": 1e3 * cost.database,
            }
            for call, cost in calls.items()
        ]
    return rows


def predicted_here(level: Level, costs: Costs) -> float:
    """Return the trials a second that the model expects of a level: of workers that share the machine's processors.

    Args:
        level: To predict: from its workers, their pause, what a trial takes of processors, and the cores left.
        costs: Of calls.
    """
    stations = Station("processors", level.processor + level.database, level.cores), Station("lock", costs.lock)
    return throughput(level.workers, level.pad, stations)


def expected(workers: int, seconds: float, costs: Costs) -> tuple[float, str]:
    """Return the trials a second of workers on devices of their own, and what is nearest to its limit."""
    trial, beats = costs.of_trial(workers), costs.of_beats(workers)
    stations = (
        Station("database", trial.database, CORES, beats.database / CORES),
        Station("lock", costs.lock),
        Station("proxy", trial.proxy, 1.0, beats.proxy),
    )
    found = throughput(workers, seconds + trial.client, stations)
    return found, max(stations, key=lambda one: one.busy + found * one.seconds / one.servers).name


def full_at(seconds: float, costs: Costs) -> int:
    """Return the least number of workers that finish less than `LINEAR` of what they would, alone; at most `MOST`."""

    def is_full(workers: int) -> bool:
        return expected(workers, seconds, costs)[0] < LINEAR * workers * expected(1, seconds, costs)[0]

    low, high = 1, MOST + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_full(middle) else (middle + 1, high)
    return low


def scale_rows(names: Sequence[str], costs: Sequence[Costs]) -> list[Row]:
    """Return the table of what up to a thousand workers finish."""
    rows: list[Row] = []
    for name, way in zip(names, costs, strict=True):
        for seconds in LENGTHS:
            alone, full = expected(1, seconds, way)[0], full_at(seconds, way)
            row: dict[str, object] = {"seconds of a trial": seconds, "by": name}
            row |= {f"{count} workers": expected(count, seconds, way)[0] / count / alone for count in WORKERS}
            row["below 0.9 at"] = full if full <= MOST else f"over {MOST}"
            row["first full"] = expected(min(full, MOST), seconds, way)[1]
            rows.append(row)
    return rows
