"""A user without a home or an account, closed streams, paths as objects: a run, or a line with the way out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tuner.errors import StoreError, TunerError, UsageError
from tuner.files import cache_folder
from tuner.results.run import Run
from tuner.task.file.load import open_task


def closed(folder: Path, streams: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where some standard streams are closed."""
    command = " ".join([f'"{sys.executable}"', "-m", "tuner", *arguments, streams])
    environment = {**os.environ, "TUNER_CACHE": str(folder / "cache")}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("streams", "error"),
    [(">&-", "tuner: stdout is closed, and what is printed is lost"), ("2>&-", ""), (">&- 2>&-", ""), ("<&-", "")],
)
def test_closed_streams_are_no_traceback(tmp_path: Path, streams: str, error: str) -> None:
    done = closed(tmp_path, streams, "plugins")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(error)
    assert bool(done.stdout) == (">&-" not in streams.replace("2>&-", ""))


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_progress_and_not_the_run(tmp_path: Path, own_cache: Path) -> None:
    command = f'"{sys.executable}" -m tuner run digits --trials 1 --out run'
    ended = subprocess.run(
        ["/bin/bash", "-c", f"{command} 2>&1 | head -n 1; exit ${{PIPESTATUS[0]}}"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
    )
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 1)
    assert [record.state for record in Run.open(tmp_path / "run").records] == ["done"]


def test_too_little_address_space_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (700_000_000,) * 2); from tuner.cli.app import call; "
    )
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}raise SystemExit(call(['run', 'digits', '--trials', '1']))"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        timeout=120,
    )
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert line.startswith("tuner: the address space of this process is limited to 700.0 MB (ulimit -v)")


def test_without_a_home_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_: str) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("TUNER_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", nowhere)
    with pytest.raises(
        StoreError, match="there is no home folder for tuner's cache: set TUNER_CACHE to a folder of yours"
    ):
        cache_folder()


@pytest.mark.parametrize("home", ["/proc/nowhere", "/dev/null"])
def test_a_home_that_cannot_be_written_names_the_variable(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.delenv("TUNER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    with pytest.raises(StoreError, match=r"cannot use the folder .*tuner .*give another one, by TUNER_CACHE"):
        cache_folder()


@pytest.mark.parametrize("task", ["~no-such-user/task.toml", "~no-such-user/mine.py:task"])
def test_a_tilde_without_a_home_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    with pytest.raises(TunerError, match=r"^~no-such-user/.*: its ~ leads to no home folder: set HOME, or give the wh"):
        open_task(task)
    monkeypatch.chdir(tmp_path)
    Path("~no-such-user").mkdir()
    Path(task.rpartition(":")[0] or task).write_text("def task(): return 5")
    with pytest.raises(TunerError, match=r"not valid TOML|must return a tuner\.Task"):  # a file may have such a name
        open_task(task)


@pytest.mark.parametrize("task", [Path("nowhere.toml"), Path("nowhere"), Path("net.py:build")])
def test_a_task_may_be_a_path(tmp_path: Path, cache: None, task: Path) -> None:
    with pytest.raises(TunerError, match=r"nowhere|net") as caught:
        tuner.run(tmp_path / task, trials=1, out=tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_task_that_is_none_is_one_line(tmp_path: Path, cache: None) -> None:
    with pytest.raises(UsageError, match=r"a task must be a text, a path or a tuner\.Task, got a int"):
        tuner.run(5, trials=1, out=tmp_path / "run")  # type: ignore[arg-type]  # what a user may give
