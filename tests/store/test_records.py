"""Record files: what is appended is read back under its own key, and no wrong record where a file is cut or damaged."""

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.store.made_up import PLAIN, SHAPE, filled, records, sample, samples
from tuner.arrays import Codes, Floats
from tuner.errors import StoreError
from tuner.store.codec import Codec, calibrate
from tuner.store.files.disk import StoreFull
from tuner.store.files.header import StoreKey
from tuner.store.files.records import BadRecord, RecordFile


def scales() -> tuple[Floats, Floats]:
    return calibrate(np.random.default_rng(1).random((8, *SHAPE), dtype=np.float32))


def test_what_is_appended_is_read_once_in_any_order_and_after_reopening(tmp_path: Path) -> None:
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
        file.append([ids[0], ids[0]], records(2, seed=9))  # they have a record
        assert len(file) == 10
        np.testing.assert_array_equal(file.read(ids), rows)
        file.close()  # it opens itself again
        np.testing.assert_array_equal(file.read(ids), rows)
        file.close()
        file.append([sample(99)], rows[:1])
        assert len(file) == 11


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
    other = replace(key, scales=Codec(4, SHAPE, low, high + 1).scales)
    with pytest.raises(StoreError, match="another scales"):
        RecordFile.create_or_open(tmp_path / "a", other, low, high + 1)


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


def test_records_with_scales_of_their_own_have_another_key_and_come_back(tmp_path: Path) -> None:
    shape = (4, 5, 5)
    maps = np.random.default_rng(2).random((3, *shape), dtype=np.float32)
    low, high = calibrate(maps)
    codec = Codec(1, shape, low, high, per_sample=True)
    key = replace(PLAIN, bits=1, shape=shape, scales=codec.scales, per_sample=True)
    assert key.digest() != replace(key, per_sample=False).digest()
    ids = samples(3)
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


def test_records_without_index_entries_are_written_over_and_those_of_a_damaged_header_dropped(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a", 6)
    with (tmp_path / "a" / "data").open("ab") as data:
        data.write(bytes(1000))
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        assert file.nbytes == 6 * (144 + 24)
        file.append([sample(99)], rows[:1])
        np.testing.assert_array_equal(file.read([*ids, sample(99)]), rows[[0, 1, 2, 3, 4, 5, 0]])
    (tmp_path / "a" / "header").write_bytes(b"TUNERREC" + bytes(40))
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        assert len(file) == 0
        assert "header is damaged" in file.take_notices()[0]


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


def test_a_full_disk_is_reported_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    ids, rows = filled(tmp_path / "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        before = file.nbytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        try:
            with pytest.raises(StoreFull, match="is full"):
                file.append(samples(10, 50), records(10))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert file.nbytes == before
        np.testing.assert_array_equal(file.read(ids), rows)
        file.append([sample(50)], records(1))
        assert len(file) == 11
