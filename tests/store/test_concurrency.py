"""Several writers and readers of one record file, and writers that are killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.store.made_up import PLAIN, records, sample
from tuner.arrays import Codes
from tuner.store.files.records import BadRecord, RecordFile

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
    root = Path(__file__).parents[2]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=root)


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
        np.testing.assert_array_equal(file.read([sample(i) for i in range(200)]), expected(0, 200))
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
    ids = [sample(i) for i in range(400)]
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
