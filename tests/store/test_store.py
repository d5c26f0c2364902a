"""The store of features: its list, its cap, what is evicted first; and a store from elsewhere, whose header may lie."""

import json
import os
import struct
import zlib
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.store.made_up import PLAIN, records, samples
from tuner.errors import StoreError
from tuner.store.files import header
from tuner.store.files.disk import StoreFull
from tuner.store.files.header import DamagedHeaderError, StoreKey
from tuner.store.files.index import MOST_INDEX_BYTES
from tuner.store.files.records import RecordFile
from tuner.store.store import Store, open_store


def key(cut: str) -> StoreKey:
    return replace(PLAIN, cut=cut)


def fill(store: Store, cut: str, count: int, seconds: float | None = None) -> RecordFile:
    file = store.file(key(cut), seconds_per_record=seconds)
    file.append(samples(count), records(count))
    return file


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_list_shows_what_is_stored(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    fill(store, "f13", 10, 0.005)
    fill(store, "f16", 20)
    unknown, known = store.list()
    assert (known.key, known.records, known.seconds_per_record) == (key("f13"), 10, 0.005)
    assert (unknown.key, unknown.records, unknown.seconds_per_record) == (key("f16"), 20, None)
    assert known.bytes + unknown.bytes == store.nbytes == on_disk(tmp_path / "store")
    assert known.path == store.path(key("f13"))
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "store" / "lock").stat().st_mode & 0o777 == 0o600


def test_clearing_frees_the_bytes_and_leaves_what_is_not_ours(tmp_path: Path) -> None:
    store = Store(tmp_path)
    file = fill(store, "f13", 10)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "data").write_bytes(b"mine")
    before = store.nbytes
    assert store.clear() == before - 4
    assert (tmp_path / "photos" / "data").read_bytes() == b"mine"
    assert not store.list()
    assert file.missing(samples(1)) == samples(1)


def test_the_file_that_saves_least_time_per_byte_goes_first_and_kept_ones_never(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for cut, seconds in (("a", 0.03), ("b", 0.01), ("c", 0.02)):
        fill(store, cut, 10, seconds)
    store.cap_bytes = store.nbytes
    assert store.room(1)
    assert [file.key.cut for file in store.list() if file.key] == ["c", "a"]
    store.in_use.add(store.path(key("c")))
    assert store.room(3000)
    assert [file.key.cut for file in store.list() if file.key] == ["c"]
    assert not store.room(10_000)
    assert len(store.list()) == 1


def test_what_this_run_does_not_use_goes_before_what_it_does(tmp_path: Path) -> None:
    earlier = Store(tmp_path)
    fill(earlier, "used again", 10, 0.02)
    fill(earlier, "of another size", 10, 0.03)
    store = Store(tmp_path)
    fill(store, "own", 10, 0.01)
    store.file(key("used again"))
    elsewhere = copy(store)  # as a process that it is sent to opens it
    for each in (store, elsewhere):
        assert [file.key.cut for file in each.list() if file.key] == ["of another size", "own", "used again"]


def test_among_equals_the_one_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    """Many in a row: a file system's own clock ticks every few milliseconds, in which several are made."""
    store = Store(tmp_path)
    for cut in "abcdefghijkl":
        fill(store, cut, 10, 0.01)
    store.file(key("a"))
    assert [file.key.cut for file in store.list() if file.key] == list("bcdefghijkla")


def test_a_record_that_does_not_fit_is_refused_and_nothing_else_is_lost(tmp_path: Path) -> None:
    store = Store(tmp_path, 3000)
    file = fill(store, "a", 10)
    before = on_disk(tmp_path)
    with pytest.raises(StoreFull, match=r"the features do not fit into the 3\.0 kB of the store: give more --storage"):
        file.append(samples(20, 10), records(20))
    assert on_disk(tmp_path) == before
    np.testing.assert_array_equal(file.read(samples(10)), records(10))
    file.append(samples(2, 10), records(2))


def test_a_cap_below_a_header_makes_no_file(tmp_path: Path) -> None:
    store = Store(tmp_path, 100)
    with pytest.raises(StoreFull):
        store.file(PLAIN)
    assert on_disk(tmp_path) == 0
    store.cap_bytes = 10_000
    fill(store, "f13", 3)


def test_opening_a_store_over_its_cap_brings_it_under(tmp_path: Path) -> None:
    store = Store(tmp_path)
    fill(store, "a", 50, 1.0)
    fill(store, "b", 50, 0.5)
    cap = store.nbytes - 1
    assert [file.key.cut for file in Store(tmp_path, cap).list() if file.key] == ["a"]


def test_a_file_that_another_evicted_is_begun_anew(tmp_path: Path) -> None:
    store = Store(tmp_path, 5000)
    first = fill(store, "a", 20, 0.001)
    fill(store, "b", 15, 0.01)
    assert first.missing(samples(20)) == samples(20)
    first.append(samples(1), records(1))
    np.testing.assert_array_equal(first.read(samples(1)), records(1))


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("mine")
    return path


def filled(folder: Path) -> Path:
    """Make a store of one record, and return the folder of its record file."""
    fill(store := open_store(folder), "f13", 1)
    return store.path(PLAIN)


@pytest.mark.parametrize("name", ["lock", "kinds", "scales", "starts", "0" * 32])
def test_a_store_that_holds_a_link_is_refused(name: str, tmp_path: Path, precious: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / name).symlink_to(precious)
    with pytest.raises(StoreError, match=f"'{name}' in it is neither a file nor a folder"):
        open_store(tmp_path / "store")
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("name", ["data", "index", "cost", "header"])
def test_clearing_removes_a_link_and_not_what_it_leads_to(name: str, tmp_path: Path, precious: Path) -> None:
    folder = filled(tmp_path / "store")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(precious)
    with pytest.raises(StoreError, match=f"'{name}' in it is neither a file nor a folder.: remove it"):
        open_store(tmp_path / "store").file(PLAIN)
    open_store(tmp_path / "store").list()
    open_store(tmp_path / "store").clear()
    assert precious.read_text() == "mine"
    assert not folder.exists()


def test_clearing_leaves_the_content_of_a_file_with_another_name(tmp_path: Path, precious: Path) -> None:
    folder = filled(tmp_path / "store")
    (folder / "data").unlink()
    (folder / "data").hardlink_to(precious)
    open_store(tmp_path / "store").clear()
    assert precious.read_text() == "mine"


def test_a_store_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "store")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(StoreError, match=rf"is owned by another user \(id {own}\): give a folder of your own"):
        open_store(tmp_path / "store")


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "[]",
        "{}",
        '{"bounds": []}',
        json.dumps({"bounds": [], "prefix": 1, "preprocessing": 1, "kind": 1, "cut": 1, "bits": 3, "shape": [1]}),
        json.dumps({"bounds": ["x"], "shape": 3}),
        json.dumps({"bounds": [], "bits": 8, "shape": [10**9, "x"]}),
    ],
)
def test_a_header_that_lies_with_a_checksum_is_damaged(content: str, tmp_path: Path) -> None:
    body = content.encode()
    crc = zlib.crc32(body, zlib.crc32(struct.pack("<II", 1, len(body))))
    path = tmp_path / "header"
    path.write_bytes(struct.pack("<8sIII", b"TUNERREC", 1, len(body), crc) + body)
    with pytest.raises(DamagedHeaderError, match="is damaged"):
        header.read(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedHeaderError, match="not a regular file"):
        header.read(tmp_path / "pipe")


def test_an_index_that_no_store_has_is_emptied(tmp_path: Path) -> None:
    folder = filled(tmp_path / "store")
    os.truncate(folder / "index", 100 * MOST_INDEX_BYTES)
    store = Store(tmp_path / "store")
    assert [file.records for file in store.list()] == [0]
    assert len(store.file(PLAIN)) == 0
    assert (folder / "index").stat().st_size == 0
