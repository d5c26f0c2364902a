"""A database that is silent, rather than refusing, holds nobody beyond the time, nor after Ctrl-C."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event

from benchmarks.fleet.servers import Server
from tuner.errors import RunError
from tuner.search.processes.guard import Interrupt
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import DEFAULTS, engine_arguments, opened
from tuner_fleet.storage.patience import Patience, patient
from tuner_fleet.storage.trials import Trials

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


@pytest.mark.parametrize("reason", ["interrupt", "time"])
def test_a_worker_ends_while_its_database_is_silent(join: Join, server: Server, reason: str) -> None:
    interrupt, end = Interrupt(), time.monotonic() + (6.0 if reason == "time" else 3600.0)
    worker = join("one", at=f"{server.url}#silent-{reason}", interrupt=interrupt, end=end)
    trial = worker.begin()
    with stopped(server):
        began = time.monotonic()
        if reason == "interrupt":
            interrupt.ask()
            with pytest.raises(KeyboardInterrupt):
                worker.hear()
        else:
            with pytest.raises(RunError, match="did not answer until the time was up"):
                worker.hear()
        worker.shared.leave()
        assert time.monotonic() - began < MOST_SECONDS / 2
    with opened(read_address(server.url)) as later:
        assert trial.number in [one.number for one in Trials(later, f"silent-{reason}").all()]


def test_a_connection_that_is_given_up_is_not_used_again(server: Server) -> None:
    class OverError(Exception):
        pass

    def over(_seconds: float) -> None:
        raise OverError

    with opened(read_address(server.url)) as plain:
        storage = patient(plain, Patience(over, print))
        storage.get_all_studies()
        with stopped(server):
            for _ in range(2):
                with pytest.raises(OverError):
                    storage.get_all_studies()
        assert isinstance(plain.get_all_studies(), list)


def test_who_is_silent_is_waited_for_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner_fleet.storage.patience.LEFT_SECONDS", 0.01)
    monkeypatch.setattr("tuner_fleet.storage.patience.SILENT_SECONDS", 0.05)
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
