"""The processes of `benchmarks.fleet`: workers that join, work, are killed and drain, a proxy; and a full study."""

import json
import math
import multiprocessing
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, text

from benchmarks.fleet.servers import Server
from benchmarks.fleet.worker import DRAIN, FINISHED, QUEUED, READY, Part, Shape, Worker, give_order, work
from tuner.search.trials.journal import RUNG
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.storage.trials import Trials
from tuner_fleet.study.content import KEY, RECORD

#: Trials of a full study, and how many of them a worker makes; the others are copies.
TRIALS, MADE = 2000, 40
WAIT_SECONDS = 120.0
#: Tables of a trial, and what is copied of each.
TABLES = {
    "trial_params": ("param_name", "param_value", "distribution_json"),
    "trial_values": ("objective", "value", "value_type"),
    "trial_user_attributes": ("key", "value_json"),
    "trial_system_attributes": ("key", "value_json"),
}
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["benchmarks.lib.report", "benchmarks.fleet.worker"])


class Fleet:
    """Workers of one study, which are processes.

    Args:
        url: Address of the study.
        base: Folder of all of them.
        settings: Of each worker, see `Part`.
    """

    def __init__(self, url: str, base: Path, **settings: Any) -> None:
        base.mkdir(exist_ok=True)
        self.url, self._base, self._settings = url, base, settings
        self.processes: dict[str, ForkServerProcess] = {}
        self._started = 0

    def start(self, count: int, *, wait: bool = True) -> None:
        """Let so many workers join."""
        names = [f"w{self._started + at}" for at in range(count)]
        self._started += count
        for name in names:
            part = Part(self.url, self._base, name, **self._settings)
            self.processes[name] = FORK.Process(target=work, args=(part,), daemon=True)
            self.processes[name].start()
        if wait:
            self._await(lambda: all((self._base / name / READY).exists() for name in names), "join")

    def order(self, name: str, seconds: float) -> None:
        """Let them work for some time."""
        give_order(self._base, name, time.time() + seconds)

    def results(self, name: str) -> list[Mapping[str, Any]]:
        """Wait for an order's end, and return what each worker notes of it."""
        files = [self._base / worker / f"{name}.json" for worker in self.processes]
        self._await(lambda: all(file.exists() for file in files), f"end {name}")
        return [json.loads(file.read_text()) for file in files]

    def kill(self, draw: random.Random) -> None:
        """Kill one of those that have joined."""

        def joined() -> list[str]:
            return [one for one in self.processes if (self._base / one / READY).exists()]

        self._await(lambda: len(joined()) > len(self.processes) // 2, "join")
        process = self.processes.pop(draw.choice(joined()))
        process.kill()
        process.join()

    def drain(self) -> None:
        """Let them finish what was begun, and end."""
        give_order(self._base, DRAIN, math.inf)
        self._await(lambda: not any(one.is_alive() for one in self.processes.values()), "drain")

    def finished(self) -> set[int]:
        """Return the trials that a worker finished, killed ones included."""
        return {int(line) for file in self._base.glob(f"*/{FINISHED}") for line in file.read_text().split()}

    def trials(self) -> list[FrozenTrial]:
        """Return the trials in the database."""
        address = read_address(self.url)
        with opened(address) as storage:
            return Trials(storage, address.study).all()

    def _await(self, done: Callable[[], bool], what: str) -> None:
        """Wait until workers have done something.

        Raises:
            RuntimeError: One of them has failed.
            TimeoutError: They have not.
        """
        end = time.monotonic() + WAIT_SECONDS
        while not done():
            if any(one.exitcode for one in self.processes.values()):
                raise RuntimeError(f"a worker failed: they did not {what}")
            if time.monotonic() > end:
                raise TimeoutError(f"the workers did not {what} within {WAIT_SECONDS:.0f} s")
            time.sleep(0.05)

    def losses(self) -> dict[str, object]:
        """Return what was lost or doubled, once all is drained."""
        trials, finished = self.trials(), self.finished()
        kept = {one.number for one in trials if one.state is TrialState.COMPLETE and RECORD in one.user_attrs}
        trained = [one for one in trials if one.number in kept and one.user_attrs[RECORD]["same_as"] is None]
        counted = Counter(one.user_attrs[KEY] for one in trained)
        begun = {one.user_attrs[KEY] for one in trials if KEY in one.user_attrs}
        return {
            "rungs finished": len(kept),
            "on the top rung": sum(one.user_attrs[RUNG] == 0 for one in trials if one.number in kept),
            "put in the queue": sum(QUEUED in one.user_attrs for one in trained),
            "tried again": sum("failed_trial" in one.system_attrs for one in trials), "lost": len(finished - kept),
            "doubled": sum(counted.values()) - len(counted), "begun, never finished": len(begun - counted.keys()),
        }  # fmt: skip


def fill(server: Server, url: str, folder: Path, of: Shape) -> None:
    """Fill a study with trials of a model and a task: some by a worker, and copies of them."""
    base = folder / "filling"
    base.mkdir()
    worker = Worker(Part(url, base, "first", 0.0, of=of))
    for _ in range(MADE):
        worker.trial()
    worker.leave()
    engine = create_engine(read_address(server.url).url)
    with engine.begin() as connection:
        names = {"name": read_address(url).study, "made": MADE, "times": TRIALS // MADE - 1}
        connection.execute(
            text(
                "INSERT INTO trials (number, study_id, state, datetime_start, datetime_complete) "
                "WITH RECURSIVE k AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM k WHERE k < :times) "
                "SELECT t.number + :made * k.k, t.study_id, t.state, t.datetime_start, t.datetime_complete "
                "FROM trials t JOIN studies s USING (study_id) CROSS JOIN k "
                "WHERE s.study_name = :name ORDER BY k.k, t.number"
            ),
            names,
        )
        for table, names_of in TABLES.items():
            columns = ", ".join(map(engine.dialect.identifier_preparer.quote, names_of))
            connection.execute(
                text(
                    f"INSERT INTO {table} (trial_id, {columns}) SELECT n.trial_id, {columns} "  # noqa: S608 - names of our own
                    "FROM trials n JOIN studies s USING (study_id) "
                    f"JOIN trials o ON o.study_id = n.study_id AND o.number = n.number % :made JOIN {table} p "
                    "ON p.trial_id = o.trial_id WHERE s.study_name = :name AND n.number >= :made"
                ),
                names,
            )
        connection.execute(text("ANALYZE" if engine.name == "postgresql" else f"ANALYZE TABLE {', '.join(TABLES)}"))
    engine.dispose()


def measure_level(fleet: Fleet, workers: int, seconds: float) -> tuple[int, float, float]:
    """Let so many workers work for some seconds: those that have joined, and others that are started.

    Returns:
        Trials that they finished, trials a second, and seconds of the workers' processors a trial.
    """
    fleet.start(workers - len(fleet.processes))
    fleet.order(f"level-{workers}", seconds)
    found = fleet.results(f"level-{workers}")
    trials, own = sum(one["trials"] for one in found), sum(one["processor"] for one in found)
    return trials, sum(one["trials"] / one["seconds"] for one in found), own / trials


@contextmanager
def proxy_of(url: str) -> Iterator[str]:
    """Give the address of a proxy in front of a database."""
    study = url.partition("#")[2]
    port = re.sub(r".*:(\d+)/.*", r"\1", url)
    own = str(int(port) + 1)
    command = [sys.executable, "-m", "tuner_fleet.proxy", url, "--port", own]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the proxy does not start")
            yield f"grpc://localhost:{own}#{study}"
        finally:
            process.terminate()
