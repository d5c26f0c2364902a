"""Record files that are cut, damaged or out of room: no wrong record is read, and what is lost is filled again."""

import resource
from pathlib import Path

import numpy as np
import pytest

from tests.store.made_up import PLAIN, filled, records, sample
from tuner.arrays import Codes
from tuner.store.files.disk import StoreFull
from tuner.store.files.records import BadRecord, RecordFile


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


def test_a_damaged_header_drops_its_records_and_reports_it(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    (tmp_path / "a" / "header").write_bytes(b"TUNERREC" + bytes(40))
    with RecordFile.create_or_open(tmp_path / "a", PLAIN) as file:
        assert len(file) == 0
        assert "header is damaged" in file.take_notices()[0]


def test_a_full_disk_is_reported_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
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
