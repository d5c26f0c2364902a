"""Files that the user names: regular ones only, bounded in bytes and depth, of any name; else one reason at once."""

import os
import time
from pathlib import Path

import pytest

from tuner.errors import TaskError
from tuner.reading import (
    MOST_DEPTH,
    MOST_TEXT_BYTES,
    files_below,
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
    ("name", "kind", "reason"),
    [
        ("fifo", "special", "a FIFO, not a regular file"),
        ("endless", "special", "a device, not a regular file"),
        ("terminal", "special", "a device, not a regular file"),
        ("loop", "nothing", "Too many levels of symbolic links"),
        ("folder", "folder", "Is a directory"),
        ("gone", "nothing", "No such file or directory"),
        ("n" * 300, "nothing", "File name too long"),
        ("nul\0nul", "nothing", "no file can have this name"),
    ],
)
def test_what_is_no_regular_file_is_refused_and_closed_again(special: Path, name: str, kind: str, reason: str) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=reason):
        open_regular(special / name)
    with pytest.raises(TaskError, match=rf"cannot be read \({reason}\): give another$"):
        read_text(special / name, TaskError, "give another")
    assert kind_of(special / name) == kind
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


def test_links_to_folders_elsewhere_are_followed_and_none_into_the_folder_itself(tmp_path: Path) -> None:
    photos, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    for place in (photos / "cat/May", photos / "dog", elsewhere / "June"):
        place.mkdir(parents=True)
        (place / f"{place.name}.png").touch()
    (photos / "hat").symlink_to(elsewhere)
    (photos / "animal").symlink_to(photos / "cat")
    (photos / "cat/up").symlink_to(photos)
    (photos / "dog/out").symlink_to(elsewhere)
    (elsewhere / "again").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(photos)
    (photos / "all").symlink_to(tmp_path)
    found = sorted(str(file.relative_to(photos)) for file in files_below(photos))
    assert found == ["cat/May/May.png", "dog/dog.png", "dog/out/June/June.png", "hat/June/June.png"]


def test_text_that_is_no_utf8_says_where(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("name = 'Tür'".encode("latin-1"))
    with pytest.raises(TaskError, match=r"it is not UTF-8 text: .* at byte 9"):
        read_toml(tmp_path / "latin", TaskError, "save it again")
    (tmp_path / "marked").write_bytes("name = 'Tür'".encode("utf-8-sig"))
    assert read_toml(tmp_path / "marked", TaskError, "save it again") == {"name": "Tür"}


TOO_DEEP = rf"may (be nested|have) {MOST_DEPTH}"
TOO_LARGE = r"^an integer must fit into 64 bits$"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 100_000, TOO_DEEP),
        ("a = " + "{b=" * 100_000, TOO_DEEP),
        ("a" + ".a" * 100_000 + " = 1", TOO_DEEP),
        ("a" + " . a" * 100_000 + " = 1", TOO_DEEP),
        ("[" + "a." * 100_000 + "a]", TOO_DEEP),
        ("a = {" + ", ".join(f"k{n}" + ".b" * 40 + " = 1" for n in range(100)) + "}", TOO_DEEP),
        ("a = " + "9" * 5001, TOO_LARGE),
        (f"a = [1, {{ b = {2**63} }}]", TOO_LARGE),
        (f"a = -{2**63 + 1}", TOO_LARGE),
    ],
)
def test_deep_toml_and_large_integers_are_refused_at_once(text: str, reason: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=reason):
        parse_toml(text)
    assert time.process_time() - began < 2


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
