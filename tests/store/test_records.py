"""Record files: what is appended is read back, under its own key only."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.store.made_up import PLAIN, SHAPE, filled, records, sample
from tuner.arrays import Floats
from tuner.errors import StoreError
from tuner.store.codec import Codec, calibrate
from tuner.store.files.header import StoreKey
from tuner.store.files.records import RecordFile


def scales() -> tuple[Floats, Floats]:
    return calibrate(np.random.default_rng(1).random((8, *SHAPE), dtype=np.float32))


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


def test_records_with_scales_of_their_own_have_another_key_and_come_back(tmp_path: Path) -> None:
    shape = (4, 5, 5)
    maps = np.random.default_rng(2).random((3, *shape), dtype=np.float32)
    low, high = calibrate(maps)
    codec = Codec(1, shape, low, high, per_sample=True)
    key = replace(PLAIN, bits=1, shape=shape, scales=codec.scales, per_sample=True)
    assert key.digest() != replace(key, per_sample=False).digest()
    ids = [f"{number:032x}" for number in range(3)]
    with RecordFile.create_or_open(tmp_path / "a", key, low, high) as file:
        file.append(ids, codec.encode(maps))
    with RecordFile.create_or_open(tmp_path / "a", key) as file:
        np.testing.assert_array_equal(file.codec.decode(file.read(ids)), codec.decode(codec.encode(maps)))


def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        file.note(0.5)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "a").iterdir()}
    assert modes == dict.fromkeys(("cost", "data", "header", "index"), 0o600)


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
