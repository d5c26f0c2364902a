"""Several processes on one store, and those that are killed: nothing is torn, nothing forgotten stays."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from tests.disk import standing_bytes
from tests.store.made_up import PLAIN, filled, records, sample, samples
from tuner.arrays import Codes
from tuner.errors import StoreError
from tuner.store import usage
from tuner.store.files import slots
from tuner.store.files.disk import write_at
from tuner.store.files.records import BadRecord, RecordFile
from tuner.store.kept import choose_engine, chosen_engine
from tuner.store.store import Store

ROOT = Path(__file__).parents[2]


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


WRITER = """
import sys
from pathlib import Path
import numpy as np
from tuner.store.files.header import StoreKey
from tuner.store.files.records import RecordFile
folder, first, last, batch = Path(sys.argv[1]), *map(int, sys.argv[2:])
key = StoreKey("prefix", "pixels", "torch-fp32", "f13", 32, (4, 3, 3), "")
with RecordFile.create_or_open(folder, key) as file:
    for start in range(first, last, batch):
        numbers = range(start, min(start + batch, last))
        ids = [f"{i:032x}" for i in numbers]
        file.append(ids, np.stack([np.full(144, i % 251, np.uint8) for i in numbers]))
        if start == first:
            print("begun", flush=True)
"""


def writer(folder: Path, first: int, last: int, batch: int) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", WRITER, str(folder), str(first), str(last), str(batch)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def expected(first: int, last: int) -> Codes:
    return np.stack([np.full(144, i % 251, np.uint8) for i in range(first, last)])


def test_a_reader_sees_what_another_file_object_wrote_dropped_or_evicted(tmp_path: Path) -> None:
    with (
        RecordFile.create_or_open(tmp_path / "a", PLAIN) as first,
        RecordFile.create_or_open(tmp_path / "a", PLAIN) as second,
    ):
        first.append([sample(1), sample(2)], records(2))
        assert sample(1) in second
        np.testing.assert_array_equal(second.read([sample(2)]), records(2)[1:])
        first.forget([sample(1)])
        first.append([sample(3)], records(3)[2:])  # in the slot that was sample 1's
        np.testing.assert_array_equal(second.read([sample(3), sample(2)]), records(3)[[2, 1]])
        with pytest.raises(BadRecord):
            second.read([sample(1)])
        for name in ("index", "data", "header"):
            (tmp_path / "a" / name).unlink()
        assert second.missing([sample(2)]) == [sample(2)]
        second.append([sample(2)], records(1))
        np.testing.assert_array_equal(first.read([sample(2)]), records(2)[1:])  # held open, and still right
        assert first.missing([sample(2), sample(3)]) == [sample(3)]


def test_two_processes_append_to_one_file_at_once(tmp_path: Path) -> None:
    with writer(tmp_path / "a", 0, 120, 4) as first, writer(tmp_path / "a", 80, 200, 4) as second:
        assert first.wait(120) == 0
        assert second.wait(120) == 0
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        assert len(file) == 200
        assert file.nbytes == 200 * (144 + 24)
        np.testing.assert_array_equal(file.read(samples(200)), expected(0, 200))
        assert not file.take_notices()


@pytest.mark.slow
def test_a_filling_killed_at_random_moments_ends_with_the_same_digest(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for _ in range(4):
        with writer(tmp_path / "a", 0, 100_000, 3) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(generator.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
    ids = samples(400)
    with (
        RecordFile.create_or_open(tmp_path / "a", PLAIN) as file,
        RecordFile.create_or_open(tmp_path / "b", PLAIN) as undisturbed,
    ):
        kept = file.sample_ids()
        assert kept
        np.testing.assert_array_equal(file.read(kept), expected(0, len(kept)))
        ids += kept[400:]
        whole = expected(0, len(ids))
        for target in (file, undisturbed):
            missing = target.missing(ids)
            target.append(missing, whole[[int(number, 16) for number in missing]])
        assert file.digest() == undisturbed.digest()


FILLER = """
import sys
from pathlib import Path
import numpy as np
from tuner.store.files.disk import StoreFull
from tuner.store.files.header import StoreKey
from tuner.store.store import Store
store = Store(Path(sys.argv[1]), 20_000)
for cut in range(6):
    key = StoreKey("prefix", "pixels", "torch-fp32", sys.argv[2] + str(cut), 32, (4, 3, 3), "")
    for start in range(0, 80, 8):
        try:
            file = store.file(key)
            file.append([f"{i:032x}" for i in range(start, start + 8)], np.zeros((8, 144), np.uint8))
        except StoreFull:
            pass
"""


@pytest.mark.slow
def test_the_cap_holds_at_every_moment_with_two_processes_filling(tmp_path: Path) -> None:
    done, most = threading.Event(), 0

    def watch() -> None:
        nonlocal most
        while not done.wait(0.001):
            most = max(most, standing_bytes(tmp_path))

    watcher = threading.Thread(target=watch)
    watcher.start()
    command = [sys.executable, "-c", FILLER, str(tmp_path)]
    try:
        with (
            subprocess.Popen([*command, "x"], cwd=ROOT) as first,
            subprocess.Popen([*command, "y"], cwd=ROOT) as second,
        ):
            codes = first.wait(120), second.wait(120)
    finally:
        done.set()
        watcher.join()
    assert codes == (0, 0)
    assert 10_000 < most <= 20_000


@pytest.mark.slow
def test_two_processes_may_choose_an_engine_at_once_and_the_first_holds(tmp_path: Path) -> None:
    stores = [Store(tmp_path / "store") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for number in range(100):
            list(pool.map(lambda i, n=number: choose_engine(stores[i], f"model{n}", 1, f"kind{i}"), range(2)))
            assert chosen_engine(tmp_path / "store", f"model{number}", 1) in {"kind0", "kind1"}
    choose_engine(stores[0], "model0", 1, "another")
    assert chosen_engine(tmp_path / "store", "model0", 1) != "another"
