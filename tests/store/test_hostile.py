"""A store from elsewhere: nothing outside it is written or cut short, and a header that lies is damaged."""

import json
import os
import struct
import zlib
from pathlib import Path

import pytest

from tests.store.made_up import PLAIN, records, sample
from tuner.errors import StoreError
from tuner.store.files import header
from tuner.store.files.header import DamagedHeaderError
from tuner.store.files.index import MOST_INDEX_BYTES
from tuner.store.store import Store, open_store


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("mine")
    return path


def filled(folder: Path) -> Path:
    """Make a store of one record, and return the folder of its record file."""
    store = open_store(folder)
    with store.file(PLAIN) as file:
        file.append([sample(0)], records(1))
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


def test_a_pipe_is_no_header(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "header")
    with pytest.raises(DamagedHeaderError, match="not a regular file"):
        header.read(tmp_path / "header")


def test_an_index_that_no_store_has_is_emptied(tmp_path: Path) -> None:
    folder = filled(tmp_path / "store")
    os.truncate(folder / "index", 100 * MOST_INDEX_BYTES)
    store = Store(tmp_path / "store")
    assert [file.records for file in store.list()] == [0]
    assert len(store.file(PLAIN)) == 0
    assert (folder / "index").stat().st_size == 0
