import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.arrays import Codes, Floats
from tuner.errors import StoreError
from tuner.store.codec import Codec, calibrate
from tuner.store.records import BadRecord, RecordFile, StoreFull, StoreKey

SHAPE = (4, 3, 3)
PLAIN = StoreKey("prefix", "pixels", "torch-fp32", "f13", 32, SHAPE, "")


def sample(number: int) -> str:
    return f"{number:032x}"


def records(count: int, codec: Codec | None = None, seed: int = 0) -> Codes:
    size = (codec or Codec(32, SHAPE)).record_bytes
    return np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)


def filled(folder: Path, count: int = 10, batch: int = 3) -> tuple[list[str], Codes]:
    ids, rows = [sample(i) for i in range(count)], records(count)
    with RecordFile.create_or_open(folder, PLAIN) as file:
        for start in range(0, count, batch):
            file.append(ids[start : start + batch], rows[start : start + batch])
    return ids, rows


def scales() -> tuple[Floats, Floats]:
    return calibrate(np.random.default_rng(1).random((8, *SHAPE), dtype=np.float32))


def restore(folder: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def recompute(file: RecordFile, ids: list[str], rows: Codes) -> Codes:
    """What a caller does: fill what is missing, read, and fill again what was bad."""
    for _ in range(2):
        missing = file.missing(ids)
        file.append(missing, np.stack([rows[ids.index(sample_id)] for sample_id in missing]) if missing else rows[:0])
        try:
            return file.read(ids)
        except BadRecord:
            continue
    return file.read(ids)


def test_what_is_appended_is_read_in_any_order_and_after_reopening(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a")
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        np.testing.assert_array_equal(file.read([ids[7], ids[0], ids[1], ids[2], ids[7]]), rows[[7, 0, 1, 2, 7]])
        assert ids[3] in file
        assert sample(77) not in file
        assert file.missing([sample(77), ids[1], sample(78)]) == [sample(77), sample(78)]
        assert len(file) == 10
        assert file.sample_ids() == ids
        assert file.nbytes == 10 * (4 * 36 + 24)
        out = np.empty((2, 144), np.uint8)
        assert file.read(ids[4:6], out) is out
        np.testing.assert_array_equal(out, rows[4:6])


def test_a_sample_that_has_a_record_is_skipped(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a")
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        before = file.nbytes
        file.append([ids[0], ids[0]], records(2, seed=9))
        assert file.nbytes == before
        np.testing.assert_array_equal(file.read(ids), rows)


def test_the_scales_are_kept_with_the_records(tmp_path: Path) -> None:
    low, high = scales()
    codec = Codec(4, SHAPE, low, high)
    key = replace(PLAIN, bits=4, scales=codec.scales)
    with RecordFile.create_or_open(tmp_path / "a", key, low, high) as file:
        file.append([sample(1)], records(1, codec))
    with RecordFile.create_or_open(tmp_path / "a", key) as file:
        assert file.codec.low is not None
        np.testing.assert_array_equal(file.codec.low, low)
        np.testing.assert_array_equal(file.codec.decode(file.read([sample(1)])), codec.decode(records(1, codec)))
    with pytest.raises(StoreError, match="scales given are not"):
        RecordFile.create_or_open(tmp_path / "a", key, low, high + 1)
    with pytest.raises(StoreError, match="need low and high"):
        RecordFile.create_or_open(tmp_path / "b", key)


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAIN, prefix="another"),
        replace(PLAIN, preprocessing="another"),
        replace(PLAIN, kind="torch-bf16"),
        replace(PLAIN, cut="f16"),
        replace(PLAIN, bits=16),
        replace(PLAIN, shape=(3, 4, 3)),
    ],
)
def test_records_are_never_read_under_another_key(tmp_path: Path, other: StoreKey) -> None:
    ids, rows = filled(tmp_path / "a")
    with pytest.raises(StoreError, match="holds records made with another"):
        RecordFile.create_or_open(tmp_path / "a", other)
    with RecordFile.create_or_open(tmp_path / "b", other):
        pass
    for name in ("data", "index"):  # not even when the files are carried over
        (tmp_path / "b" / name).write_bytes((tmp_path / "a" / name).read_bytes())
    with RecordFile.create_or_open(tmp_path / "b", other) as file:
        assert len(file) == 0
        assert "damaged" in file.take_notices()[0]
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        np.testing.assert_array_equal(file.read(ids), rows)


def test_records_of_other_scales_are_never_read(tmp_path: Path) -> None:
    low, high = scales()
    key = replace(PLAIN, bits=8, scales=Codec(8, SHAPE, low, high).scales)
    with RecordFile.create_or_open(tmp_path / "a", key, low, high):
        pass
    other = replace(key, scales=Codec(8, SHAPE, low, high + 1).scales)
    with pytest.raises(StoreError, match="another scales"):
        RecordFile.create_or_open(tmp_path / "a", other, low, high + 1)


def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        file.note(0.5)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "a").iterdir()}
    assert modes == dict.fromkeys(("cost", "data", "header", "index"), 0o600)


def test_a_file_cut_at_any_byte_opens_again_with_every_indexed_record_right(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    ids, rows = filled(folder, 4)
    whole = {name: (folder / name).read_bytes() for name in ("header", "data", "index")}
    cuts = [("index", at) for at in range(len(whole["index"]) + 1)]
    cuts += [("data", at) for at in range(0, len(whole["data"]), 37)]
    cuts += [("header", at) for at in range(0, len(whole["header"]), 23)]
    for name, at in cuts:
        restore(folder, whole | {name: whole[name][:at]})
        with RecordFile.create_or_open(folder, PLAIN) as file:
            if name == "index":
                assert len(file) == at // 24
                np.testing.assert_array_equal(file.read(ids[: at // 24]), rows[: at // 24])
                assert not file.take_notices()
            np.testing.assert_array_equal(recompute(file, ids, rows), rows)
        with RecordFile.create_or_open(folder, PLAIN) as file:
            np.testing.assert_array_equal(file.read(ids), rows)
        assert len((folder / "index").read_bytes()) == 4 * 24
        assert len((folder / "data").read_bytes()) == 4 * 144


def test_records_written_without_their_index_entries_are_written_over(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a", 6)
    with (tmp_path / "a" / "data").open("ab") as data:
        data.write(bytes(1000))
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        assert file.nbytes == 6 * (144 + 24)
        file.append([sample(99)], rows[:1])
        np.testing.assert_array_equal(file.read([*ids, sample(99)]), rows[[0, 1, 2, 3, 4, 5, 0]])


def test_no_flipped_bit_ever_yields_a_wrong_record(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    ids, rows = filled(folder, 5)
    whole = {name: (folder / name).read_bytes() for name in ("header", "data", "index")}
    generator = np.random.default_rng(0)
    lengths = np.cumsum([len(content) for content in whole.values()])
    for turn, at in enumerate(generator.integers(0, lengths[-1] * 8, 500)):
        part = int(np.searchsorted(lengths, at // 8, side="right"))
        name = list(whole)[part]
        content = bytearray(whole[name])
        content[at // 8 - (lengths[part - 1] if part else 0)] ^= 1 << (at % 8)
        restore(folder, whole | {name: bytes(content)})
        with RecordFile.create_or_open(folder, PLAIN) as file:
            noticed = bool(file.take_notices())
            missing = file.missing(ids)
            assert noticed == bool(missing)
            with pytest.raises(BadRecord) as bad:
                file.read(ids)
            assert bad.value.sample_ids == tuple(file.missing(ids))
            kept = [sample_id for sample_id in ids if sample_id not in bad.value.sample_ids]
            np.testing.assert_array_equal(file.read(kept), rows[[ids.index(sample_id) for sample_id in kept]])
            if turn % 5 == 0:  # each waits for the disk
                np.testing.assert_array_equal(recompute(file, ids, rows), rows)
            assert not file.take_notices()


def test_a_damaged_header_drops_what_lies_beside_it_and_says_so(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    (tmp_path / "a" / "header").write_bytes(b"TUNERREC" + bytes(40))
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        assert len(file) == 0
        assert "header is damaged" in file.take_notices()[0]


def test_a_slot_that_was_dropped_is_used_again(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a")
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        before = file.nbytes
        assert file.forget([ids[2], ids[5], sample(99)]) == 2
        assert rows[2].tobytes() not in (tmp_path / "a" / "data").read_bytes()
        assert file.missing(ids) == [ids[2], ids[5]]
        file.append([sample(50), sample(51), sample(52)], rows[:3])
        assert file.nbytes == before + 144 + 24
        np.testing.assert_array_equal(file.read([sample(50), sample(52), ids[9]]), rows[[0, 2, 9]])


def test_the_digest_does_not_depend_on_the_order_of_filling(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a", 300, 64)
    order = np.random.default_rng(0).permutation(300)
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as a, RecordFile.create_or_open(tmp_path / "b", PLAIN) as b:
        b.append([ids[i] for i in order[:299]], rows[order[:299]])
        assert a.digest() != b.digest()
        b.append([ids[order[299]]], rows[order[299:]])
        assert a.digest() == b.digest()


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


WRITER = """
import sys
from pathlib import Path
import numpy as np
from tuner.store.records import RecordFile, StoreKey
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


def test_two_processes_append_to_one_file_at_once(tmp_path: Path) -> None:
    with writer(tmp_path / "a", 0, 120, 4) as first, writer(tmp_path / "a", 80, 200, 4) as second:
        assert first.wait(120) == 0
        assert second.wait(120) == 0
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        assert len(file) == 200
        assert file.nbytes == 200 * (144 + 24)
        np.testing.assert_array_equal(file.read([sample(i) for i in range(200)]), expected(0, 200))
        assert not file.take_notices()


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


def test_a_full_disk_is_told_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        before = file.nbytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        try:
            with pytest.raises(StoreFull, match="is full"):
                file.append([sample(i) for i in range(50, 60)], records(10))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert file.nbytes == before
        np.testing.assert_array_equal(file.read(ids), rows)
        file.append([sample(50)], records(1))
        assert len(file) == 11


def test_what_is_not_a_record_or_a_sample_is_refused(tmp_path: Path) -> None:
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        with pytest.raises(StoreError, match="records are uint8"):
            file.append([sample(1)], records(2))
        for bad in ("", "abc", "g" * 32, "00 " * 16, "0" * 30):
            with pytest.raises(StoreError, match="32 hex digits"):
                file.append([bad], records(1))
        with pytest.raises(StoreError, match="out is"):
            file.read([sample(1)], np.empty((2, 144), np.uint8))


def test_a_closed_file_opens_itself_again(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a")
    file = RecordFile.create_or_open(tmp_path / "a", PLAIN)
    file.close()
    np.testing.assert_array_equal(file.read(ids), rows)
    file.close()
    file.append([sample(99)], rows[:1])
    assert len(file) == 11
    file.close()
