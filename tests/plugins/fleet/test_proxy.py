"""Optuna's proxy as `python -m tuner_fleet.proxy` serves it."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import optuna
import pytest

from tuner_fleet.address import read_address
from tuner_fleet.proxy import main
from tuner_fleet.storage.opening import opened

URL = "postgresql://me:s3cret@127.0.0.1:1/db"


@contextmanager
def serving(*arguments: str, **variables: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """Serve in a process; give it, and what it announced."""
    command = [sys.executable, "-m", "tuner_fleet.proxy", *arguments, "--host", "127.0.0.1"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - tests in the background ignore it
    ) as process:
        limit = threading.Timer(120, process.kill)
        limit.start()
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()
            limit.cancel()


def test_a_database_that_a_variable_names_is_served_until_ctrl_c_and_one_port_has_one_proxy(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving("--port", "0", TUNER_RUN_STUDY=address) as (process, line):
        assert line.endswith(f"serves {address}; Ctrl-C ends it\n")
        url = line.partition(" ")[0]
        with opened(read_address(url)) as storage:
            optuna.create_study(storage=storage, study_name="one").set_user_attr("one", [1, None])
        assert main([address, "--host", "127.0.0.1", "--port", url.rpartition(":")[2]]) == 1
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].splitlines()
    assert process.returncode == 0
    assert [line for line in said if "ev_epoll1_linux" not in line] == []  # gRPC may log as it is shut down
    error = capsys.readouterr().err
    assert error.startswith("tuner: port ")
    assert error.endswith("give another --port or --host\n")
    with opened(read_address(address)) as storage:
        assert optuna.load_study(study_name="one", storage=storage).user_attrs == {"one": [1, None]}


def test_no_address_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TUNER_RUN_STUDY", "")
    with pytest.raises(SystemExit):
        main([])
    assert "give the address of the database, or set TUNER_RUN_STUDY" in capsys.readouterr().err


def test_a_port_of_another_program_or_none_and_a_proxy_of_a_proxy_are_refused(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main([address, "--host", "127.0.0.1", "--port", str(other.getsockname()[1])]) == 1
    assert "give another --port" in capsys.readouterr().err
    assert main([address, "--port", "99999"]) == 1
    assert capsys.readouterr().err == "tuner: --port must be between 0 and 65535, got 99999\n"
    assert main(["grpc://127.0.0.1:9"]) == 1
    assert "must be that of a database, got that of a proxy" in capsys.readouterr().err


@pytest.mark.parametrize("is_given", [True, False])
def test_a_password_in_the_list_of_processes_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_given: bool
) -> None:
    given = [URL] if is_given else []
    monkeypatch.setenv("TUNER_RUN_STUDY", URL)
    monkeypatch.setattr(sys, "argv", ["proxy", *given])
    assert main(given) == 1
    errors = capsys.readouterr().err
    assert ("warning: whoever may list processes may read the password" in errors) == is_given
    assert "tuner: the study postgresql://me:***@127.0.0.1:1/db cannot be opened" in errors
    assert "s3cret" not in errors
