"""A disk that is full in the middle of a study: one line, no trial blamed, and --resume continues undisturbed."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.search.conftest import Begin, Tune
from tuner.cli.app import call
from tuner.errors import RunError, TunerError
from tuner.events import TrialFinished
from tuner.results.folder import JOURNAL, TRIALS
from tuner.results.records.config import Budget
from tuner.results.run import Run
from tuner.search.fill.filling import Filler
from tuner.search.study import Study


@contextmanager
def files_of(most_bytes: int) -> Iterator[None]:
    """Let this process write no file beyond a size: a write that crosses it stops there, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def outcomes(study: Study) -> list[tuple[Any, ...]]:
    return [(record.trial, record.state, record.plan and record.plan.key(), record.values) for record in study.records]


def test_whichever_write_fails_a_resumed_study_is_the_undisturbed_one(begin: Begin, tmp_path: Path) -> None:
    limits = Budget(trials=4)
    (study := begin(limits)).run()
    wanted = outcomes(study)
    files = [tmp_path / name for name in (JOURNAL, TRIALS)]
    largest = max(file.stat().st_size for file in files)
    refused = 0
    for most_bytes in range(largest - 1, 0, -largest // 12):
        for file in files:
            file.unlink()
        before = []
        try:
            study = begin(limits)
            with files_of(most_bytes):
                study.run()
        except OSError as error:
            assert error.errno == errno.EFBIG  # noqa: PT017 - smaller limits fail before the first trial
            refused += 1
            before = outcomes(study)
        (resumed := begin(limits)).run()
        assert outcomes(resumed)[: len(before)] == before
        assert outcomes(resumed) == wanted, f"with {most_bytes} bytes"
    assert refused > 8


def test_a_trial_that_fails_on_a_full_disk_has_no_record_and_runs_again(
    tune: Tune, moods: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, _offset: int, _size: int) -> None:
        os.fstat(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    moods("fine", "raise", "fine")
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(TunerError) as error:
            tune(trials=3, deterministic=True)
    assert str(error.value) == (
        f"{tmp_path / 'run'} cannot be written (No space left on device): free some space, then continue with --resume"
    )
    assert [record.state for record in Run.open(tmp_path / "run").records] == ["done"]
    assert [record.state for record in tune(trials=3, deterministic=True, resume=True).records] == ["done"] * 3


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "cannot be written (No space left on device): free some space"),
        (errno.EROFS, "cannot be written (Read-only file system): give a folder that can be written"),
        (errno.EACCES, "cannot be used (Permission denied): check its permissions"),
    ],
)
def test_any_command_reports_it_in_one_line(
    number: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    opened = os.open

    def full(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(number, os.strerror(number), "store/lock")
        return opened(path, flags, *more, **named)

    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "open", full)
    assert call(["store", "clear"]) == 1
    assert capsys.readouterr().err == f"tuner: store/lock {says}\n"


def test_features_that_find_no_room_do_not_lower_the_first_rung(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed study would train on fewer samples than an undisturbed one."""
    monkeypatch.setattr(Filler, "missing", lambda _self, _plan: 3)
    study = begin(Budget(trials=2))
    study.run()
    assert [record.rung for record in study.records] == [0, 0]


def test_a_folder_that_is_removed_under_a_run_is_one_line(
    tune: Tune, moods: Callable[..., None], tmp_path: Path
) -> None:
    def look(event: object) -> None:
        if isinstance(event, TrialFinished):
            shutil.rmtree(tmp_path / "run")

    moods("fine", "fine", "fine")
    with pytest.raises(RunError, match="run is gone: it was removed while the run wrote to it"):
        tune(trials=3, on_event=look)
