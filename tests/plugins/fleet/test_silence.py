"""A database that is silent, rather than refusing, holds nobody beyond the time, nor after Ctrl-C."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import create_engine, event

from benchmarks.postgres import Server
from tuner.errors import RunError
from tuner_fleet.address import read_address
from tuner_fleet.storage.drivers import DEFAULTS, engine_arguments
from tuner_fleet.storage.patient import Patience, close, open_storage, patient

Join = Callable[..., Any]
#: Seconds after which a stopped server continues, so that who waits for it fails and does not hang.
MOST_SECONDS = 60.0


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop all processes of a server for the length of a block: its connections stay, and nobody answers.

    What was left behind then has its answer at the end.
    """
    assert server._process is not None
    parent = server._process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    processes = [parent, *map(int, children)]

    def go(number: signal.Signals) -> None:
        for one in processes:
            os.kill(one, number)

    later = threading.Timer(MOST_SECONDS, go, (signal.SIGCONT,))
    later.start()
    go(signal.SIGSTOP)
    try:
        yield
    finally:
        later.cancel()
        go(signal.SIGCONT)
        for thread in threading.enumerate():
            if thread.name == "storage":
                thread.join(MOST_SECONDS)


def pool_of(storage: Any) -> Any:
    """Return the connections of a database's storage."""
    return storage._backend.engine.pool


@pytest.mark.parametrize("reason", ["interrupt", "time"])
def test_a_worker_ends_while_its_database_is_silent(join: Join, server: Server, reason: str) -> None:
    worker = join("one", at=f"{server.url}#silent-{reason}")
    trial, pool = worker.begin(), pool_of(worker.shared._plain)
    with stopped(server):
        began = time.monotonic()
        if reason == "interrupt":
            worker.shared._interrupt.ask()
            with pytest.raises(KeyboardInterrupt):
                worker.hear()
        else:
            worker.shared._end = began
            with pytest.raises(RunError, match="did not answer until the time was up"):
                worker.hear()
        worker.shared.leave()
        assert time.monotonic() - began < MOST_SECONDS / 2
    pool.dispose()
    later = open_storage(read_address(server.url))
    study = optuna.load_study(study_name=f"silent-{reason}", storage=later)
    assert trial.number in [one.number for one in study.get_trials()]
    close(later)


def test_a_connection_that_is_given_up_is_not_used_again(server: Server) -> None:
    class OverError(Exception):
        pass

    def over(_seconds: float) -> None:
        raise OverError

    plain = open_storage(read_address(server.url))
    storage, pool = patient(plain, Patience(over, print)), pool_of(plain)
    storage.get_all_studies()
    assert pool.checkedout() == 0
    with stopped(server):
        for given_up in (1, 2):
            with pytest.raises(OverError):
                storage.get_all_studies()
            assert pool.checkedout() == given_up
    assert isinstance(plain.get_all_studies(), list)
    close(plain)


def test_who_is_silent_is_waited_for_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner_fleet.storage.patient.LEFT_SECONDS", 0.01)
    monkeypatch.setattr("tuner_fleet.storage.patient.SILENT_SECONDS", 0.05)
    answers, lines, waited = threading.Event(), list[str](), list[float]()

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if lines:
            answers.set()

    def ask(number: int) -> int:
        answers.wait(MOST_SECONDS)
        return number + 1

    assert Patience(wait, lines.append).call(ask, 1) == 2
    assert [line.partition(" (")[0] for line in lines] == [
        "warning: the study's database does not answer",
        "the study's database answers again after 0 s",
    ]
    assert set(waited) == {0.0}


@pytest.mark.parametrize(
    ("url", "driver", "own"),
    [
        ("postgresql://me@host/db", "psycopg", {}),
        ("postgresql://me@host/db?connect_timeout=3&tcp_user_timeout=0", "psycopg", {"connect_timeout": "3"}),
        ("mysql://me@host/db", "pymysql", {}),
        ("mysql://me@host/db?read_timeout=5", "pymysql", {"read_timeout": 5}),
        ("sqlite:////tmp/db?timeout=2", "pysqlite", {"timeout": 2.0}),
    ],
)
def test_what_the_address_says_of_timeouts_counts(url: str, driver: str, own: dict[str, Any]) -> None:
    pytest.importorskip({"pysqlite": "sqlite3"}.get(driver, driver))
    address, given = read_address(url), dict[str, Any]()
    engine = create_engine(address.url, **engine_arguments(address))

    def connect(_dialect: Any, _record: Any, _positional: Any, named: dict[str, Any]) -> Any:
        given.update(named)
        raise InterruptedError

    event.listen(engine, "do_connect", connect)
    with pytest.raises(InterruptedError):
        engine.connect()
    said = {name: given[name] for name in DEFAULTS[driver]}
    assert {name: said[name] for name in own} == own
    assert {name: said[name] for name in said if name not in url} == {
        name: value for name, value in DEFAULTS[driver].items() if name not in url
    }
