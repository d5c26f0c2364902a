"""Forgetting: no byte of a forgotten record stays, whenever the process is killed; nobody stores it again meanwhile."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.store.made_up import PLAIN, filled, records, sample
from tuner.errors import StoreError
from tuner.store import usage
from tuner.store.files import slots
from tuner.store.files.disk import write_at
from tuner.store.files.records import BadRecord, RecordFile
from tuner.store.store import Store


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(count: int) -> Callable[..., None]:
    """Return a function that does what another does, and ends the process at its `count`-th call."""
    calls = 0

    def go(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            raise Killed
        write_at(*arguments)

    return go


def left(folder: Path, rows: Any) -> int:
    """Return how many of the rows' bytes are anywhere in a folder."""
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return sum(any(row.tobytes() in content for content in contents) for row in rows)


@pytest.mark.parametrize("count", range(1, 10))
def test_killed_anywhere_and_asked_again_nothing_of_the_records_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    ids, rows = filled(tmp_path / "a", 6)
    assert left(tmp_path, rows) == 6
    with monkeypatch.context() as patch:
        patch.setattr(slots, "write_at", step := killed_at(count))
        patch.setattr("tuner.store.files.index.write_at", step)
        with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file, suppress(Killed):
            file.forget(ids[:4])
            assert count > 8, "it was not killed"
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        file.forget(ids[:4])
        assert file.missing(ids) == ids[:4]
        assert (file.read(ids[4:]) == rows[4:]).all()
    assert left(tmp_path, rows[:4]) == 0


def test_a_damaged_record_that_was_dropped_before_is_overwritten_too(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a", 3)
    with (tmp_path / "a" / "data").open("r+b") as data:
        data.write(bytes([rows[0, 0] ^ 1]))
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        with pytest.raises(BadRecord):
            file.read(ids[:1])
        assert left(tmp_path, rows[:1, 1:]) == 1
        assert file.forget(ids[:1]) == 0
    assert left(tmp_path, rows[:1, 1:]) == 0


USER = """
import sys
from pathlib import Path
from tuner.store.store import Store
store = Store(Path(sys.argv[1]))
print("begun", flush=True)
sys.stdin.read()
"""


def test_nobody_deletes_what_another_process_uses_until_that_ends_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PATIENCE_SECONDS", 0.05)
    command = [sys.executable, "-c", USER, str(tmp_path / "store")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        store = Store(tmp_path / "store")
        with pytest.raises(StoreError, match="is in use by a run, which would store again"), store.alone():
            pass
        process.kill()
    with store.alone(), pytest.raises(StoreError, match="is being deleted from by another process"):
        Store(tmp_path / "store")
    Store(tmp_path / "store")


def test_a_lock_that_a_stopped_process_holds_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "CHANGE_SECONDS", 0.05)
    store = Store(tmp_path)
    with FileLock(tmp_path / "lock"), pytest.raises(StoreError, match="has been locked by another process"):
        store.file(PLAIN).append([sample(1)], records(1))
