"""Folders and files that are private to the user, and others that are left as they are."""

import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from tests.killed import contents, killed
from tuner.cli.app import call
from tuner.errors import RunError
from tuner.files import cache_folder, private_file, private_folder, remove_parts, write_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_and_an_empty_one_become_private(tmp_path: Path) -> None:
    assert mode(private_folder(tmp_path / "a" / "b")) == 0o700
    (tmp_path / "empty").mkdir(mode=0o755)
    assert mode(private_folder(tmp_path / "empty")) == 0o700


def test_a_folder_with_something_else_in_it_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").touch()
    assert mode(cache_folder()) == 0o755
    (tmp_path / "letter.txt").unlink()
    (tmp_path / "rates").mkdir()
    assert mode(cache_folder()) == 0o700


def test_what_only_looks_needs_no_home(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNER_CACHE", "/proc/none")  # no folder can be made there
    bundle = Path(__file__).parent / "fixtures" / "digits" / "bundle"
    for command in (["status", str(bundle)], ["store", "list"]):
        assert call(command) == 0, capsys.readouterr().err


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunError, match="tuner cannot use the folder"):
            private_folder(path)


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_whole_and_private(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o644)
    umask = os.umask(0)
    try:
        with private_file(path, durable=durable) as part:
            assert mode(part) == 0o600
            part.write_text("after")
            assert path.read_text() == "before"
    finally:
        os.umask(umask)
    assert (path.read_text(), mode(path)) == ("after", 0o600)
    write_private(path, b"bytes", durable=durable)
    assert path.read_bytes() == b"bytes"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_file_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_private(path, "before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "write_bytes")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            with pytest.raises(OSError, match="No space left"):
                write_private(path, "after")
        assert path.read_text() == "before"
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_whole_file_and_parts_that_can_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for _ in killed(10, 0.04, contents, path):
        content = path.read_text()
        assert (len(content), len(set(content))) == (100_000, 1)
    remove_parts(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_also_to_a_library_that_has_errors_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    with pytest.raises(OSError, match="No space left") as raised, private_file(path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert (raised.value.errno, raised.value.filename) == (28, str(path))
    assert not list(tmp_path.iterdir())
