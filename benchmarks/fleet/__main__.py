"""Many workers on one study in a database: throughput, workers that are killed, an outage, kinds of devices.

Workers are processes without PyTorch (`benchmarks.fleet.worker`), which join, claim and finish trials as `tuner run
--study` does. A trial takes a fixed 2 s, in which its worker sleeps: a machine of two cores cannot train sixteen trials
at once, but it can hold what they say to the database. So the throughput is that of the storage and the queue; the
workers' own Python, which a fleet would have a device each for, shares these cores with the database, and counts
against it. Plans and records are those of the space `smoke`, on a made-up model, or on that of `--task`. The study has
2,000 trials before the first worker joins: 40 that a worker made, copied within the database. The server is
PostgreSQL or MariaDB (`benchmarks.fleet.servers`); it does not wait for the disk.

- `throughput`: 1, 2, 4, 8 and 16 workers. What the storage takes of a trial is measured by `benchmarks.fleet.storage`.
- `kills`: eight workers with trials of 0.5 s on two rungs and a heartbeat of 0.5 s; one of them is killed (SIGKILL) at
  a random moment, and another joins, 20 times. Each puts three first plans in the queue and three of a prior, of a pool
  of 60 plans that all suggest too. Finished rungs are those that a worker noted as finished.
- `stop`: four workers with trials of 1 s and the usual heartbeat; the server is stopped for 30 s.
- `kinds`: three workers that train digits, or `--task`, on one core, on two, and in little memory
  (`benchmarks.fleet.kinds`).
"""

import math
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path

from optuna.trial import TrialState

from benchmarks.fleet.kinds import measure_kinds
from benchmarks.fleet.processes import Fleet, fill, measure_level
from benchmarks.fleet.servers import MariaDB, PostgreSQL, Server, running
from benchmarks.fleet.worker import MODEL, TASK, Shape, shape_of
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner_fleet.study.content import WORKER

LEVELS, QUICK = (1, 2, 4, 8, 16), (1, 2, 4)
PAD, SECONDS, QUICK_SECONDS = 2.0, 10.0, 6.0
LINEAR = 0.9
#: First plans that each worker puts in the queue, and as many of a prior.
QUEUED = 3
KILLS, QUICK_KILLS, STOPPED, QUICK_STOPPED = 20, 4, 30.0, 5.0


class Bench:
    """What the parts share.

    Args:
        server: The database.
        folder: For the workers' folders.
        task: Name or file of a task; the parts' own where it is not given.
        quick: Whether to take fewer workers and less time.
    """

    def __init__(self, server: Server, folder: Path, *, task: str | None, quick: bool) -> None:
        self.server, self.folder, self.task, self.quick = server, folder, task, quick
        self.counts: Sequence[int] = QUICK if quick else LEVELS
        self.seconds = QUICK_SECONDS if quick else SECONDS

    @cached_property
    def shape(self) -> Shape:
        """Return the model and the task of padded trials."""
        return (MODEL, TASK) if self.task is None else shape_of(self.task)


DATABASES: Mapping[str, type[Server]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}


def main() -> None:
    """Run the parts, and print tables and claims."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--database", choices=DATABASES, default="postgresql")
    parser.add_argument("--task", help="a task's name or file, whose plans throughput and kinds take")
    options = parser.parse_args()
    rows: list[Row] = []
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory(prefix="tuner-fleet-") as folder, running(DATABASES[options.database]) as server:
        bench = Bench(server, Path(folder), task=options.task, quick=options.quick)
        for name in options.parts:
            some_rows, some_claims = PARTS[name](bench)
            rows, claims = [*rows, *some_rows], [*claims, *some_claims]
    finish("fleet", rows, claims, options.json)


def of_throughput(bench: Bench) -> tuple[list[Row], list[Claim]]:
    """Measure how many trials a second so many workers finish, in a study that is full."""
    url = f"{bench.server.url}#full"
    fill(bench.server, url, bench.folder, bench.shape)
    fleet = Fleet(url, Path(tempfile.mkdtemp(dir=bench.folder)), pad=PAD, of=bench.shape)
    rows, first, linear = list[Row](), 0.0, 1.0
    for workers in bench.counts:
        trials, rate, processor = measure_level(fleet, workers, bench.seconds)
        first = first or rate / workers
        linear = rate / workers / first
        row = {"workers": workers, "trials of 2 s": trials, "trials a second": rate, "of linear": linear}
        rows.append({**row, "worker's processor ms": 1e3 * processor})
    fleet.drain()
    last = bench.counts[-1]
    claim = f"{last} workers finish at least {LINEAR} times {last} times as many as one (2 s each)"
    return rows, [Claim(claim, "linear", f"{linear:.3f}", linear >= LINEAR)]


def of_kills(bench: Bench) -> tuple[list[Row], list[Claim]]:
    """Kill workers at random moments."""
    draw, count = random.Random(0), QUICK_KILLS if bench.quick else KILLS
    settings = {"pad": 0.5, "beat": 0.5, "grace": 3.0, "rungs": True, "queued": QUEUED}
    fleet = Fleet(f"{bench.server.url}#kills", bench.folder / "kills", **settings)
    fleet.start(8)
    fleet.order("run", math.inf)
    for _ in range(count):
        time.sleep(draw.uniform(0.2, 1.0))
        fleet.kill(draw)
        fleet.start(1, wait=False)
    fleet.drain()
    found = fleet.losses()
    claim = f"{count} workers killed at random: no finished rung is lost, none counts twice, each begun one is finished"
    wrong = [found[name] for name in ("lost", "doubled", "begun, never finished")]
    measured = f"{wrong[0]} lost, {wrong[1]} doubled, {wrong[2]} never finished, of {found['rungs finished']}"
    return [{"workers killed": count, **found}], [Claim(claim, "0", measured, not any(wrong))]


def of_stop(bench: Bench) -> tuple[list[Row], list[Claim]]:
    """Stop the server for a while."""
    seconds = QUICK_STOPPED if bench.quick else STOPPED
    fleet = Fleet(f"{bench.server.url}#stop", bench.folder / "stop", pad=1.0)
    fleet.start(4)
    fleet.order("run", math.inf)
    time.sleep(5.0)
    bench.server.stop()
    time.sleep(seconds)
    bench.server.start()
    up = time.time()
    time.sleep(12.0)
    alive = sum(one.is_alive() for one in fleet.processes.values())
    fleet.drain()
    after = sorted(
        (one.datetime_complete.timestamp(), one.user_attrs[WORKER])
        for one in fleet.trials()
        if one.state is TrialState.COMPLETE
        and one.datetime_complete
        and one.datetime_complete > datetime.fromtimestamp(up)  # noqa: DTZ006 - as Optuna's own
    )
    first = {worker: ended - up for ended, worker in reversed(after)}
    found = fleet.losses()
    row = {
        "seconds stopped": seconds, "workers that continue": len(first), "the last after s": max(first.values()),
        **found,
    }  # fmt: skip
    wrong = [found[name] for name in ("lost", "doubled", "begun, never finished")]
    claim = f"the database stopped for {seconds:.0f} s and started: all workers wait and continue, nothing is lost"
    last = max(first.values())
    measured = f"{alive} of 4 wait, {len(first)} continue, the last trial ends after {last:.1f} s, {wrong[0]} lost"
    return [row], [Claim(claim, "project's bound", measured, alive == len(first) == 4 and not any(wrong))]


def of_kinds(bench: Bench) -> tuple[list[Row], list[Claim]]:
    """Let workers of three kinds train, one after another."""
    return measure_kinds(bench.server.url, bench.folder / "kinds", bench.task or "digits", quick=bench.quick)


PARTS = {"throughput": of_throughput, "kills": of_kills, "stop": of_stop, "kinds": of_kinds}

if __name__ == "__main__":
    main()
