"""Workers of one study, in this process; and a real PostgreSQL for what only a database shows."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.fleet.servers import MARIADB_FOLDER, MariaDB, PostgreSQL, Server, running
from tests.search import conftest as search
from tuner.results.folder import Identity, RunInfo
from tuner.results.kinds import Device
from tuner.results.records.config import Budget, RunConfig
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.setting import Setting
from tuner.search.study import Study
from tuner_fleet.address import read_address
from tuner_fleet.study.join import SharedStudy
from tuner_fleet.study.queue import SharedQueue

#: Fixtures of the search's tests, which these need too.
cache, plugin, moods, task, tune = search.cache, search.plugin, search.moods, search.task, search.tune
heard, stand_in, begin, ladder_of_three = search.heard, search.stand_in, search.begin, search.ladder_of_three
Begin = Callable[..., Study]
Join = Callable[..., "Worker"]
BOARD, PHONE = Device("Board", "aarch64", 4, 2), Device("Phone", "aarch64", 1, 1)


class Worker:
    """One worker: its study, step by step, and what it shares."""

    def __init__(self, study: Study, shared: SharedStudy, queue: SharedQueue, folder: Path) -> None:
        self.study, self.shared, self.queue, self.folder = study, shared, queue, folder

    def begin(self) -> Any:
        """Take the next trial, and do not finish it."""
        self.study._hear()
        return self.study._next()

    def step(self) -> None:
        """Carry one trial through, if there is one."""
        trial = self.begin()
        if trial is not None:
            self.end(trial)

    def end(self, trial: Any) -> None:
        """Carry a trial through, unless another worker trains its plan."""
        record = self.study._try(trial)
        if record is not None:
            self.study._keep(trial, record)

    def retired(self) -> list[int]:
        """Look at the others' marks until they have stood still for more than a second; return whom it retired."""
        heartbeat, found = self.shared._heartbeat, list[int]()
        assert heartbeat is not None
        heartbeat._beat = 0.6  # as if so much time passed between two looks, at most
        for _ in range(4):
            heartbeat._looked -= 0.6
            found += heartbeat.look()
        return found

    def settle(self) -> None:
        """Wait until the store has what it is to have, or does not answer."""
        weights = self.shared._weights
        if weights is None:
            return
        for _ in range(100):
            weights._begin()
            if not weights._thread.is_alive():
                return
            weights._thread.join(10)

    def hear(self) -> None:
        """Look at what the others have finished."""
        self.study._hear()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def join(begin: Begin, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Begin the study at `address`, or join it, in a folder of its own; threads of heartbeats begin with `beat`."""
    opened: list[SharedStudy] = []
    numbers = count()  # a worker's name is part of its seed
    named = SimpleNamespace(token_hex=lambda nbytes: f"{next(numbers):0{2 * nbytes}x}")
    monkeypatch.setattr("tuner_fleet.study.join.secrets", named)

    def go(
        name: str,
        limits: Budget = Budget(trials=6),  # noqa: B008 - frozen
        *,
        device: Device = BOARD,
        at: str = address,
        seed: int = 3,
        slower: float = 1.0,
        listener: Listener | None = None,
        beat: float = 3600.0,
        grace: float = 2.0,
        artifacts: Path | None = None,
        worker: str = "",
        **settings: Any,
    ) -> Worker:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        shared = SharedStudy(read_address(at), (listener or Listener()).say, Interrupt(), None, artifacts)
        opened.append(shared)
        shared.device = replace(device, trial_bytes=limits.memory_bytes)
        made: list[SharedQueue] = []

        def queue_of(setting: Setting) -> SharedQueue:
            info = RunInfo(
                Identity(setting.task.fingerprint, "space", seed, deterministic=False),
                RunConfig("made-up", limits=limits),
                "made-up",
                "space",
                1,
                setting.model,
                setting.task,
                tuple(setting.objectives),
                worker=worker,
            )
            made.append(shared.join(setting, info, beat, grace)[0])
            return made[0]

        changed: dict[str, Any] = {"folder": folder, "kind": shared.kind}
        study = begin(limits, queue_of=queue_of, deterministic=False, step_seconds=1e-3 * slower, **changed, **settings)
        return Worker(study, shared, made[0], folder)

    yield go
    for shared in opened:
        shared.leave()


@pytest.fixture(scope="module")
def maria() -> Iterator[Server]:
    """A MariaDB server."""
    if MariaDB.programs() is None:
        pytest.skip(f"MariaDB is not installed, and {MARIADB_FOLDER} does not name it")
    with running(MariaDB) as server:
        yield server


@pytest.fixture(scope="module", params=["server", "maria"])
def any_server(request: pytest.FixtureRequest) -> Server:
    """A server of each database."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL server."""
    if PostgreSQL.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with running(PostgreSQL) as found:
        yield found
