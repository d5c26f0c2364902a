"""The page as it is built, without ONNX Runtime's own files."""

import json
import shutil
from pathlib import Path

import pytest

from tuner.bundle.format import file_hash
from tuner.commands.bundles import page
from tuner.commands.bundles.page import BUILT, NEEDED, RUNTIME


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of what is built, with a small file for each of ONNX Runtime's."""
    folder = tmp_path / "built"
    shutil.copytree(BUILT, folder, ignore=shutil.ignore_patterns(RUNTIME))
    (folder / RUNTIME).mkdir()
    needed = json.loads((folder / NEEDED).read_text())
    for name in needed["files"]:
        (folder / RUNTIME / name).write_text(name)
    hashes = {name: file_hash(folder / RUNTIME / name) for name in needed["files"]}
    (folder / NEEDED).write_text(json.dumps({**needed, "files": hashes}))
    monkeypatch.setattr(page, "BUILT", folder)
    return folder
