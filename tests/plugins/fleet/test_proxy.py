"""Optuna's proxy as `python -m tuner_fleet.proxy` serves it."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from tuner_fleet import proxy
from tuner_fleet.address import read_address
from tuner_fleet.proxy import main
from tuner_fleet.storage.patient import close, open_storage

URL = "postgresql://me:s3cret@127.0.0.1:1/db"


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Serve until a function returns, which is given the proxy's address; return the exit code."""

    def serve(arguments: list[str], ask: Callable[[str], object]) -> int:
        def announced(line: str) -> None:
            ask(line.partition(" ")[0])
            raise KeyboardInterrupt

        monkeypatch.setattr(proxy, "print_line", announced)
        return main([*arguments, "--host", "127.0.0.1", "--port", "0"])

    return serve


def make_study(name: str) -> Callable[[str], None]:
    def make(url: str) -> None:
        storage = open_storage(read_address(url))
        optuna.create_study(storage=storage, study_name=name).set_user_attr("one", [1, None])
        close(storage)

    return make


def test_a_study_is_made_through_the_proxy(served: Callable[..., int], address: str) -> None:
    assert served([address], make_study("one")) == 0
    storage = open_storage(read_address(address))
    study = optuna.load_study(study_name="one", storage=storage)
    assert study.user_attrs == {"one": [1, None]}
    close(storage)


def test_a_variable_may_hold_the_address(
    served: Callable[..., int], address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_RUN_STUDY", address)
    assert served([], make_study("one")) == 0
    monkeypatch.setenv("TUNER_RUN_STUDY", "")
    with pytest.raises(SystemExit):
        main([])
    assert "give the address of the database, or set TUNER_RUN_STUDY" in capsys.readouterr().err


def test_one_port_has_one_proxy(served: Callable[..., int], address: str, capsys: pytest.CaptureFixture[str]) -> None:
    codes = list[int]()

    def second(url: str) -> None:
        codes.append(main([address, "--host", "127.0.0.1", "--port", url.rpartition(":")[2]]))

    assert served([address], second) == 0
    assert codes == [1]
    line = capsys.readouterr().err
    assert line.startswith("tuner: port ")
    assert line.endswith("give another --port\n")


def test_a_port_of_another_program_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main([address, "--host", "127.0.0.1", "--port", str(other.getsockname()[1])]) == 1
    assert "give another --port" in capsys.readouterr().err


def test_a_port_that_is_none_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([address, "--port", "99999"]) == 1
    assert capsys.readouterr().err == "tuner: --port must be between 0 and 65535, got 99999\n"


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


def test_a_proxy_of_a_proxy_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grpc://127.0.0.1:9"]) == 1
    assert "must be that of a database, got that of a proxy" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(address: str) -> None:
    command = [sys.executable, "-m", "tuner_fleet.proxy", address, "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - tests in the background ignore it
    ) as process:
        limit = threading.Timer(120, process.kill)
        limit.start()
        assert process.stdout is not None
        line: Any = process.stdout.readline()
        assert line.endswith(f"serves {address}; Ctrl-C ends it\n")
        make_study("one")(line.partition(" ")[0])
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == ""
        limit.cancel()
    assert process.returncode == 0
