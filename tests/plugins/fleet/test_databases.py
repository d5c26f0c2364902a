"""Databases as users have them: PostgreSQL, which may stop and start, and Optuna's proxy in front of one."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError, PendingRollbackError

from benchmarks.fleet.processes import proxy_of
from benchmarks.fleet.servers import PASSWORD, Server
from tuner.cli.app import call
from tuner.commands.runs.source import open_run
from tuner.errors import RunError
from tuner.results.records.config import Budget
from tuner_fleet.address import Address, read_address
from tuner_fleet.storage.failures import is_outage, reason_of, refusal
from tuner_fleet.storage.opening import opened
from tuner_fleet.storage.patience import Patience, patient

Join = Callable[..., Any]


@pytest.fixture(scope="module")
def proxied(server: Server) -> Iterator[str]:
    """Optuna's proxy in front of PostgreSQL."""
    with proxy_of(server.url) as url:
        yield url.rstrip("#")


def execute(url: str, *statements: str) -> None:
    """Carry statements out in a database."""
    engine = create_engine(read_address(url).url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_several_may_make_the_tables_at_once(any_server: Server) -> None:
    execute(any_server.url, "CREATE DATABASE at_once")
    address = Address(f"{read_address(any_server.url).url.rpartition('/')[0]}/at_once", "tuner")

    def studies(_: int) -> int:
        with opened(address) as storage:
            return len(storage.get_all_studies())

    with ThreadPoolExecutor(6) as several:
        assert list(several.map(studies, range(6))) == [0] * 6


def test_workers_wait_for_a_database_that_stops_and_starts(join: Join, any_server: Server, heard: Any) -> None:
    one = join("one", Budget(trials=3), at=f"{any_server.url}#outage", listener=heard)
    one.step()
    trial = one.begin()
    any_server.stop()
    later = threading.Timer(1.0, any_server.start)
    later.start()
    one.end(trial)
    later.join()
    one.step()
    assert [record.trial for record in one.study.records] == [0, 1, 2]
    assert any("does not answer" in line for line in heard.lines)
    assert any("answers again after" in line for line in heard.lines)


def test_workers_behind_the_proxy_and_before_it_share_a_study(join: Join, server: Server, proxied: str) -> None:
    near, far = join("near", at=f"{server.url}#mixed"), join("far", at=f"{proxied}#mixed", grace=1.0)
    for _ in range(2):
        near.step()
        far.step()
    lost = near.begin()
    record = near.train(lost)
    assert far.retired() == [lost.number]
    far.step()
    near.keep(lost, record)
    near.hear()
    numbers = [record.trial for record in near.study.records]
    assert sorted(numbers) == sorted(record.trial for record in far.study.records)
    assert lost.number not in numbers


def test_a_proxy_that_does_not_answer_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner_fleet.storage.opening.OPENING_SECONDS", 0.2)
    line = r"the study grpc://127.0.0.1:9 cannot be opened \(ConnectionError: GRPC"
    with pytest.raises(RunError, match=line), opened(read_address("grpc://127.0.0.1:9")):
        pass


def test_a_password_may_be_in_an_option_file(maria: Server, tmp_path: Path) -> None:
    file = tmp_path / "my.cnf"
    file.write_text(f"[client]\npassword = {PASSWORD}\n")
    bare = maria.url.replace(f":{PASSWORD}", "")
    address = read_address(f"{bare}?read_default_file={file}")
    assert not address.has_password
    assert PASSWORD not in address.shown
    with opened(address) as storage:
        assert isinstance(storage.get_all_studies(), list)
    line = r"cannot be opened \(OperationalError: .*Access denied for user 'tuner'"
    with pytest.raises(RunError, match=line), opened(read_address(bare)):
        pass


def test_a_driver_that_needs_more_to_log_in_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_arguments: Any, **_named: Any) -> Any:
        raise RuntimeError("'cryptography' package is required for sha256_password or caching_sha2_password")

    monkeypatch.setattr("tuner_fleet.storage.opening.RDBStorage", lacking)
    line = r"the study mysql://h/d cannot be opened \(RuntimeError: 'cryptography' package"
    with pytest.raises(RunError, match=line), opened(read_address("mysql://h/d")):
        pass


@pytest.mark.slow
def test_a_run_joins_a_study_and_its_files_hold_no_password(
    tune: Callable[..., Any], moods: Callable[..., None], any_server: Server, tmp_path: Path
) -> None:
    moods("well")
    url = any_server.url.replace("tuner@", "tuner:s3cret@") + "#whole"
    first = tune(trials=3, study=url)
    second = tune(trials=5, study=url, out=tmp_path / "other")
    assert [len(first.records), len(second.records)] == [3, 5]
    assert second.records[:3] == first.records
    assert second.info.worker != first.info.worker
    assert second.info.ended == "5 trials are done"
    assert second.info.config.study == re.sub(r"s3cret[^@]*", "***", url)
    again = tune(trials=6, study=url, resume=True, memory="1GB")
    assert len(again.records) == 6
    limits = {name: kind.device.trial_bytes for name, kind in again.info.kinds.items()}
    assert limits == {first.info.kind: None, again.info.kind: 10**9}
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"s3cret" not in written


def test_a_question_that_is_cut_off_midway_is_an_outage() -> None:
    error = optuna.exceptions.StorageInternalError("raised during the commit")
    error.__cause__ = PendingRollbackError("Can't reconnect until invalid transaction is rolled back")
    assert is_outage(error)
    error.__cause__ = ValueError()
    assert not is_outage(error)


def refused(address: str, ask: Callable[[BaseStorage], object]) -> str:
    """Return what is said where a storage refuses, which nobody waits for."""
    with opened(read_address(address)) as plain, pytest.raises(RunError) as raised:
        ask(patient(plain, Patience(lambda _: pytest.fail("it waits"), print)))
    return str(raised.value)


@pytest.mark.parametrize("is_remote", [False, True])
def test_what_a_database_never_takes_is_not_waited_for(server: Server, proxied: str, *, is_remote: bool) -> None:
    def name(storage: BaseStorage) -> None:
        storage.set_study_user_attr(storage.create_new_study([StudyDirection.MINIMIZE]), "x" * 600, 1)

    said = refused(proxied if is_remote else server.url, name)
    assert said.startswith("the study's database refuses (DataError: (psycopg.errors.StringDataRight")
    assert said.endswith("see that its tables are Optuna's, hold so long a record and may be written")


def test_who_may_only_read_or_not_even_that_is_told_so(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(read_address(server.url)):
        pass  # its tables are made
    roles = "CREATE ROLE reader LOGIN", "CREATE ROLE stranger LOGIN"
    execute(server.url, *roles, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reader, stranger = (server.url.replace("tuner@", f"{name}@") for name in ("reader", "stranger"))
    said = refused(reader, lambda storage: optuna.create_study(storage=storage, study_name="no"))
    assert said.startswith("the study's database refuses (ProgrammingError: (psycopg.errors.InsufficientPrivilege)")
    assert call(["show", stranger]) == 1
    assert call(["worker", stranger, "--out", str(tmp_path / "run")]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    for line in errors:
        assert line.startswith(
            f"tuner: the study {stranger} cannot be opened (ProgrammingError: (psycopg.errors.Insuff"
        )


def test_a_database_that_goes_while_it_is_read_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_arguments: Any) -> Any:
        raise OperationalError("SELECT", {}, ConnectionResetError("gone"))

    with opened(read_address(address)) as storage:
        storage.create_new_study([StudyDirection.MINIMIZE], "tuner")
    monkeypatch.setattr("tuner_fleet.study.reader.Reader.write", gone)
    with pytest.raises(RunError, match=r"cannot be read \(OperationalError: .*\): see that it runs"):
        open_run(address)


def test_a_database_behind_the_proxy_is_waited_for_and_named(server: Server, proxied: str) -> None:
    lines = list[str]()

    def wait(_seconds: float) -> None:
        if len(lines) == 1:
            lines.append("started")
            server.start()

    with opened(read_address(proxied)) as plain:
        server.stop()
        assert isinstance(patient(plain, Patience(wait, lines.append)).get_all_studies(), list)
    assert lines[0].startswith("warning: the study's database does not answer (OperationalError: (psycopg.")
    assert "answers again" in lines[-1]


class GrpcError(Exception):
    """As gRPC raises it: a code, and details."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__("<_InactiveRpcError of RPC that terminated with:\n\tstatus = ...")
        self._code, self._details = code, details

    def code(self) -> SimpleNamespace:
        """Return what has a name."""
        return SimpleNamespace(name=self._code)

    def details(self) -> str:
        """Return the text."""
        return self._details


@pytest.mark.parametrize(
    ("code", "details", "outage", "is_refused", "reason"),
    [
        ("UNAVAILABLE", "failed to connect\nmore", True, False, "UNAVAILABLE: failed to connect"),
        ("DEADLINE_EXCEEDED", "late", True, False, "DEADLINE_EXCEEDED: late"),
        ("UNKNOWN", "Exception: raised during the commit: InterfaceError: gone", True, False, "InterfaceError: gone"),
        ("UNKNOWN", "raised during the commit: PendingRollbackError: it", True, False, "PendingRollbackError: it"),
        ("UNKNOWN", "raised during the commit: ProgrammingError: no", False, True, "ProgrammingError: no"),
        ("UNKNOWN", "raised during the commit: InternalError: no", False, False, "InternalError: no"),
        (
            "UNKNOWN",
            "raised during the commit: OperationalError: (1142, \"INSERT command denied to user 'me'\")",
            False,
            True,
            "OperationalError: (1142, \"INSERT command denied to user 'me'\")",
        ),
        ("UNKNOWN", "is raised during the commit. Typically", False, True, "UNKNOWN: is raised during the commit. Typ"),
        ("UNKNOWN", "Exception calling application: 'a'", False, False, "UNKNOWN: Exception calling application: 'a'"),
    ],
)
def test_errors_of_the_proxy_are_those_of_its_database(
    code: str, details: str, reason: str, *, outage: bool, is_refused: bool
) -> None:
    error = GrpcError(code, details)
    assert (is_outage(error), refusal(error) is not None) == (outage, is_refused)
    assert reason_of(error).startswith(reason)


def test_a_file_that_may_not_be_written_is_not_waited_for(address: str) -> None:
    with opened(read_address(address)) as storage:
        storage.create_new_study([StudyDirection.MINIMIZE])
    file = address.removeprefix("sqlite:///")
    said = refused(
        f"sqlite:///file:{file}?mode=ro&uri=true",
        lambda storage: storage.create_new_study([StudyDirection.MINIMIZE]),
    )
    assert said.startswith("the study's database refuses (OperationalError: (sqlite3.OperationalError) attempt to wri")


def test_what_is_no_outage_is_raised_at_once() -> None:
    class Broken(BaseStorage):
        calls = 0

        def get_all_studies(self) -> Any:
            self.calls += 1
            raise ValueError("no")

    made: Any = type("Whole", (Broken,), dict.fromkeys(BaseStorage.__abstractmethods__ - {"get_all_studies"}))
    broken = made()
    with pytest.raises(ValueError, match="no"):
        patient(broken, Patience(time.sleep, print)).get_all_studies()
    assert broken.calls == 1
