"""Waiting for files: a change ends it at once, time ends it where nothing can say that something changed."""

import errno
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from threading import Timer

import pytest

from tuner_watch import incoming
from tuner_watch.incoming import (
    SETTLED_SECONDS,
    Arrivals,
    IncomingFile,
    PredictedFiles,
    files_in,
    seconds_until_settled,
)

LONG = 60.0
needs_inotify = pytest.mark.skipif(find_spec("inotify_simple") is None, reason="the extra watch is not installed")


def write(path: Path) -> None:
    path.write_bytes(b"new")


@needs_inotify
@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write(folder / "1.npy"),
        lambda folder: write(folder / "class" / "1.npy"),
        lambda folder: (folder / "another class").mkdir(),
        lambda folder: (folder.parent / "2.npy").rename(folder / "2.npy"),
    ],
)
def test_a_change_ends_the_waiting(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = tmp_path / "inbox"
    (folder / "class").mkdir(parents=True)
    write(tmp_path / "2.npy")
    begin = time.monotonic()
    with Arrivals() as waiting:
        waiting.follow((folder, folder / "class", folder / "removed"))
        assert waiting.wakes
        timer = Timer(0.05, change, (folder,))
        timer.start()
        waiting.wait(LONG)
        timer.join()
    assert 0.04 < time.monotonic() - begin < LONG / 2


@needs_inotify
def test_what_came_before_the_waiting_is_not_missed(tmp_path: Path) -> None:
    begin = time.monotonic()
    with Arrivals() as waiting:
        waiting.follow((tmp_path,))
        write(tmp_path / "1.npy")
        waiting.wait(LONG)
    assert time.monotonic() - begin < LONG / 2


def test_without_changes_time_ends_it(tmp_path: Path) -> None:
    with Arrivals() as waiting:
        waiting.follow((tmp_path,))
        begin = time.monotonic()
        waiting.wait(0.05)
        assert time.monotonic() - begin >= 0.04


def test_without_the_library_it_looks_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inotify_simple", None)
    monkeypatch.setattr(incoming, "POLL_SECONDS", 0.05)
    with Arrivals() as waiting:
        assert not waiting.wakes
        waiting.follow((tmp_path,))
        begin = time.monotonic()
        waiting.wait(LONG)
        assert 0.04 <= time.monotonic() - begin < LONG / 2


@needs_inotify
def test_without_watches_left_it_looks_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import inotify_simple

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(inotify_simple.INotify, "add_watch", full)
    with Arrivals() as waiting:
        waiting.follow((tmp_path,))
        assert not waiting.wakes


def test_a_file_settles() -> None:
    file = IncomingFile(10**18, Path("1.npy"))
    half = round(0.5e9 * SETTLED_SECONDS)
    assert seconds_until_settled(file, 10**18 + half) == pytest.approx(SETTLED_SECONDS / 2)
    assert seconds_until_settled(file, 10**18 + 2 * half) == 0
    assert seconds_until_settled(file, 10**18 - 1) == 0  # the clock was set back


def test_a_folder_that_cannot_be_read_is_told_of_and_a_removed_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("closed", "gone", "open"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "1.npy")
    reasons, scandir = {"closed": errno.EACCES, "gone": errno.ENOENT}, os.scandir

    def refusing(folder: str) -> object:  # root may read every folder
        if (reason := reasons.get(Path(folder).name)) is not None:
            raise OSError(reason, os.strerror(reason), folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    refused = list[OSError]()
    files, _ = files_in(tmp_path, frozenset({".npy"}), refused.append)
    assert [file.label for file in files] == ["open"]
    assert [error.filename for error in refused] == [str(tmp_path / "closed")]


def test_what_was_never_predicted_is_new_whatever_its_dates(tmp_path: Path) -> None:
    folder, kept = tmp_path / "inbox", tmp_path / "predicted"
    for name in ("old", "inbox"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "1.npy")
    predicted = PredictedFiles(kept)
    predicted.keep([])
    for file in files_in(folder, frozenset({".npy"}))[0]:
        predicted.add(file)
    (tmp_path / "old").rename(folder / "older")  # its file keeps its dates, which are before the one that was predicted
    kept.write_bytes(kept.read_bytes() + b"torn")
    again = PredictedFiles(kept)
    files, _ = files_in(folder, frozenset({".npy"}))
    assert [file.path.parent.name for file in files if file not in again] == ["older"]
    again.keep(files)
    assert kept.stat().st_size == 16
    assert kept.stat().st_mode & 0o777 == 0o600
