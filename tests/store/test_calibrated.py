"""Frozen blocks in int8 on a device: in use by several processes, kept for a while, deleted by a command."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.made_up import PLAIN, filled
from tuner.errors import StoreError
from tuner.files import cache_folder
from tuner.store.calibrated import (
    MOST_BLOCKS,
    blocks_file,
    calibrated_blocks,
    has_blocks,
    keep_recent,
    read_costs,
    write_costs,
)
from tuner.store.store import Store
from tuner.store.usage import Usage
from tuner_store.store import clear_store, forget, store_files

IN_USE = "from tuner.store.calibrated import blocks_file; print(blocks_file('net', '1'), flush=True); input()"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[str]]:
    """Another process that uses the blocks, until it gets a line."""
    command = [sys.executable, "-c", IN_USE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        if process.poll() is None:
            process.communicate("\n")


def test_blocks_that_a_run_on_another_store_uses_are_not_deleted(
    other_process: subprocess.Popen[str], tmp_path: Path
) -> None:
    blocks, store = blocks_file("net", "1"), tmp_path / "store"
    blocks.write_bytes(b"content")
    filled(Store(store).path(PLAIN))
    before = store_files(store)
    assert before[0].records == 10
    with pytest.raises(StoreError, match="int8 is in use by a run"):
        forget("digits", store)
    with pytest.raises(StoreError, match="int8 is in use by a run"):
        clear_store(store)
    assert blocks.read_bytes() == b"content"
    assert store_files(store) == before
    other_process.communicate("\n")
    assert clear_store(store) > len(b"content")
    assert not blocks.exists()


def test_blocks_are_overwritten_before_they_are_deleted(tmp_path: Path) -> None:
    blocks = blocks_file("net", "1")
    blocks.write_bytes(b"content")
    write_costs(blocks, 1, {"seconds": 0.5})
    os.link(blocks, tmp_path / "same")
    assert clear_store(tmp_path / "store") > len(b"content")
    assert (tmp_path / "same").read_bytes() == bytes(len(b"content"))
    assert calibrated_blocks().bytes == 0


def test_blocks_of_a_model_are_found_by_its_name() -> None:
    assert not has_blocks("net")
    blocks_file("net", "1").touch()
    assert has_blocks("net")
    assert not has_blocks("ne")


def test_nothing_is_made_where_there_are_none(cache: Path, tmp_path: Path) -> None:
    assert clear_store(tmp_path / "store") == calibrated_blocks().bytes == 0
    assert not (cache / "int8").exists()


def test_those_that_were_used_longest_ago_are_deleted_with_their_costs() -> None:
    for number in range(MOST_BLOCKS + 2):
        blocks = blocks_file("net", f"{number}")
        blocks.touch()
        os.utime(blocks, (number, number))
        write_costs(blocks, 1, {"seconds": number})
    assert blocks_file("net", "0").exists()  # used again: the next two are older now
    keep_recent(blocks.parent)
    assert {path.stem for path in blocks.parent.glob("*.onnx")} == {f"net-{number}" for number in (0, *range(3, 10))}
    assert len(list(blocks.parent.glob("*.json"))) == calibrated_blocks().files == MOST_BLOCKS


def test_none_is_deleted_while_another_process_uses_any(other_process: subprocess.Popen[str]) -> None:
    for number in range(MOST_BLOCKS + 2):
        blocks_file("net", f"{number}").touch()
    keep_recent(blocks_file("net", "1").parent)
    assert calibrated_blocks().files == MOST_BLOCKS + 2
    other_process.communicate("\n")
    with pytest.raises(StoreError, match="in use by a run"), Usage(blocks_file("net", "1").parent).alone(patience=0):
        pass  # this process uses them, also after it was refused to be alone
    keep_recent(blocks_file("net", "1").parent)
    assert calibrated_blocks().files == MOST_BLOCKS


def test_costs_belong_to_a_machine_and_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_file("net", "1")
    write_costs(blocks, 2, {"seconds": 0.5})
    assert read_costs(blocks, 2) == {"seconds": 0.5}
    assert read_costs(blocks, 3) == {}
    monkeypatch.setattr("tuner.store.calibrated.this_machine", lambda: "another board with the same home folder")
    assert read_costs(blocks, 2) == {}


@pytest.mark.parametrize("content", ["", "[1]", '{"seconds": "many"}', '{"seconds": 1'])
def test_damaged_costs_are_measured_again(content: str) -> None:
    blocks = blocks_file("net", "1")
    write_costs(blocks, 2, {"seconds": 0.5})
    next(blocks.parent.glob("*.json")).write_text(content)
    assert read_costs(blocks, 2) == {}
