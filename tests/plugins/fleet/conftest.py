"""Workers of one study, in this process; and a real PostgreSQL for what only a database shows."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState

from benchmarks.fleet.servers import MARIADB_FOLDER, MariaDB, PostgreSQL, Server, running
from tests.search import conftest as search
from tuner.plugin.compose import Composed
from tuner.plugin.sources import preferred_values
from tuner.results.folder import Identity, RunInfo
from tuner.results.kinds import Device
from tuner.results.records.config import Budget, RunConfig
from tuner.results.records.trial import TrialRecord
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.propose import anchors, candidates
from tuner.search.setting import Setting
from tuner.search.study import Study
from tuner_fleet.address import read_address
from tuner_fleet.artifacts.weights import SharedWeights
from tuner_fleet.storage.opening import opened
from tuner_fleet.storage.trials import Trials
from tuner_fleet.study.heartbeat import Heartbeat
from tuner_fleet.study.join import SharedStudy
from tuner_fleet.study.queue import SharedQueue

#: Fixtures of the search's tests, which these need too.
cache, plugin, moods, task, tune = search.cache, search.plugin, search.moods, search.task, search.tune
heard, stand_in, begin, ladder_of_three = search.heard, search.stand_in, search.begin, search.ladder_of_three
make_setting, sessions, store = search.make_setting, search.sessions, search.store
Begin = Callable[..., Study]
Join = Callable[..., "Worker"]
BOARD, PHONE = Device("Board", "aarch64", 4, 2), Device("Phone", "aarch64", 1, 1)


class Worker:
    """One worker: its study, step by step, and what it shares."""

    def __init__(self, study: Study, shared: SharedStudy, queue: SharedQueue, trials: Trials, folder: Path) -> None:
        self.study, self.shared, self.queue, self.trials, self.folder = study, shared, queue, trials, folder
        self.sender: SharedWeights | None = None

    def begin(self) -> Any:
        """Take the next trial, and do not finish it."""
        self.hear()
        return self.next()

    def next(self) -> Any:
        """Take the next trial, without a look at what the others have finished."""
        return self.study._next()

    def step(self) -> None:
        """Carry one trial through, if there is one."""
        trial = self.begin()
        if trial is not None:
            self.end(trial)

    def end(self, trial: Any) -> None:
        """Carry a trial through, unless another worker trains its plan."""
        record = self.train(trial)
        if record is not None:
            self.keep(trial, record)

    def train(self, trial: Any) -> TrialRecord | None:
        """Carry a trial through, and keep nothing of it; None where another worker trains its plan."""
        return self.study._try(trial)

    def keep(self, trial: Any, record: TrialRecord | None) -> None:
        """Finish a trial."""
        assert record is not None
        self.study._keep(trial, record)

    def hear(self) -> None:
        """Look at what the others have finished."""
        self.study._hear()

    def reason_to_end(self) -> str:
        """Return why it would end now."""
        return self.study._reason_to_end(0)

    def vary(self) -> Composed:
        """Return a plan that the study suggests."""
        chosen = self.study._vary(0)
        assert chosen is not None
        return chosen

    def composed(self, trial: FrozenTrial) -> Composed:
        """Return the plan of a trial."""
        return self.study._compose(preferred_values(trial.params))

    def weights(self, number: int) -> Path:
        """Return the file of a trial's weights in its folder."""
        return self.study._weights(number)

    @property
    def heartbeat(self) -> Heartbeat:
        """What marks its trials."""
        assert self.shared.heartbeat is not None
        return self.shared.heartbeat

    def retired(self, meanwhile: Callable[[], object] = lambda: None) -> list[int]:
        """Look at the others' marks until they have stood still for 1.8 seconds; return whom it retired."""
        now, found = time.monotonic(), list[int]()
        for _ in range(4):
            now += 0.6
            meanwhile()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("tuner_fleet.study.heartbeat.time", SimpleNamespace(monotonic=lambda: now))  # noqa: B023
                found += self.heartbeat.look()
        return found

    def settle(self) -> None:
        """Wait until the store has what it is to have, or does not answer."""
        if self.sender is not None:
            self.sender.settle(60, Interrupt())

    def rests(self, rest: Callable[[float], None]) -> None:
        """Let something happen each time that it waits for others."""
        self.queue._place = replace(self.queue._place, rest=rest)

    def states(self) -> list[TrialState]:
        """Return the states of the study's trials."""
        return [trial.state for trial in self.trials.all()]


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with Optuna's tables, which takes longer to make than to copy."""
    file = tmp_path_factory.mktemp("tables") / "study.db"
    with opened(read_address(f"sqlite:///{file}")):
        return file


@pytest.fixture
def address(tables: Path, tmp_path: Path) -> str:
    """The address of a database in a file, without a study."""
    return f"sqlite:///{shutil.copy(tables, tmp_path)}"


@pytest.fixture
def join(begin: Begin, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Begin the study at `address`, or join it, in a folder of its own; threads of heartbeats begin with `beat`."""
    for drawing, name in ((anchors, "DRAWN"), (candidates, "DRAWN"), (candidates, "LOOKED_AT")):
        monkeypatch.setattr(drawing, name, 8)  # to compose plans takes longest of all
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
        interrupt: Interrupt | None = None,
        end: float | None = None,
        **settings: Any,
    ) -> Worker:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        say = (listener or Listener()).say
        weights = None if artifacts is None else SharedWeights(artifacts, say)
        storage = stack.enter_context(opened(read_address(at)))
        shared = SharedStudy(read_address(at), storage, say, interrupt or Interrupt(), end, weights)
        stack.callback(shared.leave)
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
        made_worker = Worker(study, shared, made[0], Trials(storage, shared.address.study), folder)
        made_worker.sender = weights
        return made_worker

    with ExitStack() as stack:
        yield go


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
