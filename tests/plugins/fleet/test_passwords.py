"""An address with its password in the list of processes is warned of by whatever reads a study."""

import sys
from pathlib import Path

import pytest

from tuner.cli.app import call

URL = "postgresql://me:s3cret@127.0.0.1:1/db"
COMMANDS = (
    ("show", URL),
    ("report", URL),
    ("diff", URL, "runs/alone"),
    ("prior", "build", URL, "--out", "prior.toml"),
    ("dashboard", URL),
    ("export", URL, "bundle", "--artifacts", "weights"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_readers_warn_of_a_password(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tuner", *command])
    assert call([*command]) == 1
    printed = capsys.readouterr()
    errors = printed.err
    assert "the study postgresql://me:***@127.0.0.1:1/db cannot be opened" in errors
    warning = "warning: whoever may list processes may read the password in the study's address: put it in a file named"
    assert errors.count(warning) == 1
    assert "by PGPASSFILE, or the whole address in the variable of the argument, such as TUNER_SHOW_FOLDER" in errors
    assert "s3cret" not in printed.err + printed.out


def test_a_worker_shows_no_password_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["worker", URL, "--out", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr()
    assert "the study postgresql://me:***@127.0.0.1:1/db cannot be opened" in printed.err
    assert "s3cret" not in printed.err + printed.out


def test_a_variable_is_not_warned_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tuner", "show"])
    monkeypatch.setenv("TUNER_SHOW_FOLDER", URL)
    assert call(["show"]) == 1
    errors = capsys.readouterr().err
    assert "the study postgresql://me:***@127.0.0.1:1/db cannot be opened" in errors
    assert "warning" not in errors
