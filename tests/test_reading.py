"""Files that the user names: regular ones only, bounded in bytes and depth, of any name; else one reason at once."""

import os
import time
from pathlib import Path

import pytest

from tuner.errors import TaskError
from tuner.reading import (
    MOST_DEPTH,
    MOST_TEXT_BYTES,
    kind_of,
    open_regular,
    parse_toml,
    path_from,
    read_bytes,
    read_text,
    read_toml,
    text_from,
)


@pytest.fixture
def special(tmp_path: Path) -> Path:
    """A folder with everything that is no regular file."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "terminal").symlink_to("/dev/tty")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fifo", "a FIFO, not a regular file"),
        ("endless", "a device, not a regular file"),
        ("terminal", "a device, not a regular file"),
        ("loop", "Too many levels of symbolic links"),
        ("folder", "Is a directory"),
        ("gone", "No such file or directory"),
        ("n" * 300, "File name too long"),
        ("nul\0nul", "no file can have this name"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(special: Path, name: str, reason: str) -> None:
    began = time.monotonic()
    with pytest.raises(OSError, match=reason):
        open_regular(special / name)
    with pytest.raises(TaskError, match=rf"cannot be read \({reason}\): give another$"):
        read_text(special / name, TaskError, "give another")
    assert kind_of(special / name) == {"fifo": "special", "folder": "folder"}.get(
        name, "special" if name in {"endless", "terminal"} else "nothing"
    )
    assert time.monotonic() - began < 1


def test_a_refused_file_is_closed_again(special: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(OSError, match="directory"):
            open_regular(special / "folder")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_over_its_limit_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(OSError, match="1000000 MB, more than 1 MB"):
        read_bytes(tmp_path / "sparse", 10**6)
    with pytest.raises(TaskError, match="more than 4 MB"):
        read_text(tmp_path / "sparse", TaskError, "cut it")
    (tmp_path / "full").write_bytes(b"x" * MOST_TEXT_BYTES)
    assert len(read_text(tmp_path / "full", TaskError, "cut it")) == MOST_TEXT_BYTES


def test_text_that_is_no_utf8_says_where(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("name = 'Tür'".encode("latin-1"))
    with pytest.raises(TaskError, match=r"it is not UTF-8 text: .* at byte 9"):
        read_toml(tmp_path / "latin", TaskError, "save it again")
    (tmp_path / "marked").write_bytes("name = 'Tür'".encode("utf-8-sig"))
    assert read_toml(tmp_path / "marked", TaskError, "save it again") == {"name": "Tür"}


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{b=" * 100_000,
        "a" + ".a" * 100_000 + " = 1",
        "a" + " . a" * 100_000 + " = 1",
        "[" + "a." * 100_000 + "a]",
        "a = {" + ", ".join(f"k{n}" + ".b" * 40 + " = 1" for n in range(100)) + "}",
    ],
)
def test_deep_toml_is_refused_at_once(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match=rf"may (be nested|have) {MOST_DEPTH}"):
        parse_toml(text)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("text", ["a = " + "9" * 5001, f"a = [1, {{ b = {2**63} }}]", f"a = -{2**63 + 1}"])
def test_an_integer_of_too_many_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^an integer must fit into 64 bits$"):
        parse_toml(text)


def test_brackets_and_dots_count_outside_strings_and_comments_only() -> None:
    deep, dotted = "[" * 100, "a." * 100
    text = (
        f'a = "{deep} \\" {deep}" # {deep} {dotted}\n'
        f"b = '{dotted}{deep}'\n"
        f'c = """{deep}\n " "" \\""" {dotted}"""\n'
        f"d = '''{deep}\n '' {dotted}'''\n"
        f"e = [{', '.join(['1.5'] * 100)}]\n"
        f"f = {'[' * MOST_DEPTH}{']' * MOST_DEPTH}\n"
        f"{'.'.join(['g'] * MOST_DEPTH)} = {-(2**63)}\n"
    )
    assert list(parse_toml(text)) == list("abcdefg")


def test_names_of_any_bytes_have_a_text() -> None:
    for name in (b"t\xc3\xbcr", b"a b"):
        assert os.fsencode(path_from(text_from(os.fsdecode(name)))) == name
    assert text_from(os.fsdecode(b"t\xc3\xbcr \xff\xfe")) == "tür \\xff\\xfe"
    assert path_from(os.fsdecode(b"\xff")) == os.fsdecode(b"\xff")
