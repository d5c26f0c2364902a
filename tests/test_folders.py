"""Folders that are private to the user, and others that are left as they are."""

from pathlib import Path

import pytest

from tuner.errors import RunError
from tuner.folders import cache_folder, private_folder


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


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunError, match="cannot be a folder of tuner's"):
            private_folder(path)
